"""Files that hold the rows of several batches: which batches go together, how their file is called and published.

A file's name is recorded with each of its batches, in their partitions' progress, before the file can become visible.
So whoever delivers one of them next knows where to look for it. What is there holds the batch, or not, for good. What
is not there is first kept from ever being there; then the batch gets a file of its own.

The name is that of the file's staging folder, under the lease of the first of its batches; its last part names the file
that readers see. No name is used twice.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.delivery import Attempt, DeliveryError
from airflow_provider_coordination.spark.files import Claim, MissingFileError
from airflow_provider_coordination.spark.layout import BATCH_ID
from airflow_provider_coordination.spark.sinks import SharesFiles, Sink
from airflow_provider_coordination.spark.staging import MANIFEST, STAGING
from airflow_provider_coordination.spark.storage import (
    delete_file,
    delete_folder,
    join,
    names_once,
    publish,
    read_text,
    renames,
    values_of,
    write_table,
    write_text,
)

PLACEHOLDER = "placeholder.parquet"
"""The file without rows that takes the name of one that must not appear any more."""


def may_share(attempt: Attempt) -> bool:
    """Return whether a batch may be tried in a file with others.

    That is tried once: what an earlier delivery may have left is a file of its own, which is replaced, or a file that
    is looked into.
    """
    return not attempt.batch.redeliver and attempt.batch.shared_file is None


def room_for(attempt: Attempt, sinks: Iterable[Sink]) -> int:
    """Return how many landed bytes there may be in a file that a batch shares; 0 if it has to have files of its own.

    :param sinks: those that are to take it.
    """
    rooms = [sink.shared_bytes(attempt) for sink in sinks if isinstance(sink, SharesFiles)]
    return min(rooms, default=0) if may_share(attempt) else 0


def sharing(attempts: Sequence[Attempt], room: Callable[[Attempt], int]) -> list[Attempt]:
    """Return attempts with the names of the files that their batches share, if any; each batch is whole in one file.

    :param room: returns how many landed bytes there may be in a file that a batch shares; 0 for none.
    """
    files: list[list[Attempt]] = []
    held = 0
    for attempt in attempts:
        size, most = attempt.batch.file_bytes, room(attempt)
        if most and files and held and held + size <= most:
            files[-1].append(attempt)
            held += size
        else:
            files.append([attempt])
            held = size if most else 0
    return [named for file in files for named in (together(file) if len(file) > 1 else file)]


def together(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return attempts with a new name for a file that their batches share."""
    name = new_shared_file(attempts[0])
    return [replace(attempt, shared_file=name) for attempt in attempts]


def new_shared_file(first: Attempt) -> str:
    """Return a new name for a file that batches share.

    :param first: of the first of them.
    """
    return f"{first.folder}/{first.fencing_token}/{first.set_id}.{secrets.token_hex(4)}"


def sharing_a_file(attempts: Iterable[Attempt], *, earlier: bool = False) -> dict[str, list[Attempt]]:
    """Return those attempts whose batches are in a file with others, by its name.

    :param earlier: whether the file is that of an earlier delivery.
    """
    found: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        name = attempt.batch.shared_file if earlier else attempt.shared_file
        if name is not None:
            found.setdefault(name, []).append(attempt)
    return found


def claim_of(attempt: Attempt) -> Claim:
    """Return who publishes what an attempt prepared."""
    return Claim(fencing_token=attempt.fencing_token, set_id=attempt.set_id, replaces=attempt.batch.redeliver)


class SharedFiles:
    """Those files of one dataset that batches share.

    :param root: the dataset's folder.
    :param access: how it is reached.
    """

    def __init__(self, root: str, access: Access = DEFAULT_ACCESS) -> None:
        self._root = root
        self._access = access

    def takes(self, attempt: Attempt) -> bool:
        """Return whether a batch may be in one of them.

        Where a former owner's request may still give the batch a file of its own, it has to have that name itself.
        """
        is_alone = not attempt.has_former_owners or renames(self._root, self._access)
        return is_alone and names_once(self._root, self._access)

    def file(self, name: str) -> str:
        """Return the file that readers see."""
        return join(self._root, f"{name.rsplit('/', 1)[-1]}.parquet")

    def staging(self, name: str) -> str:
        """Return the folder where it is prepared."""
        return join(self._root, STAGING, name)

    def batches(self, name: str) -> set[str] | None:
        """Return the batches that a file has rows of; None if readers see no such file."""
        try:
            return set(values_of(self.file(name), BATCH_ID, self._access))
        except FileNotFoundError:
            return None

    def seal(self, name: str, rows: Mapping[str, int], attempts: Sequence[Attempt], files: Mapping[str, int]) -> None:
        """Write down what is prepared, once it is there.

        :param rows: how many rows each batch has.
        :param files: the file that holds them, with its size in bytes; none where no batch has a row.
        """
        manifest = {
            "batches": {attempt.batch_id: [attempt.set_id, rows[attempt.batch_id]] for attempt in attempts},
            "files": [{"name": file.rsplit("/", 1)[-1], "bytes": size} for file, size in files.items()],
        }
        write_text(join(self.staging(name), MANIFEST), json.dumps(manifest), self._access)

    def commit(self, name: str, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Make a file visible, unless it is already.

        :param attempts: of some of its batches. All of them are recorded with its name.
        :returns: those for whose batches it was not prepared.
        :raises DeliveryError: if what was prepared is not whole, or another delivery.
        :raises MissingFileError: if it is gone, or somebody made sure that the file is never there.
        """
        # Where its name is given once, who is late is refused.
        is_visible, staging = renames(self._root, self._access) and bool(self.batches(name)), self.staging(name)
        try:
            manifest = json.loads(read_text(join(staging, MANIFEST), self._access))
        except FileNotFoundError:
            if is_visible or self.batches(name):
                return []
            raise MissingFileError(f"what was prepared in {staging} is gone: others deliver some of it") from None
        except ValueError as error:
            raise DeliveryError(f"what was prepared in {staging} is not whole: {error}") from None
        for attempt in attempts:
            if manifest["batches"].get(attempt.batch_id, [attempt.set_id])[0] != attempt.set_id:
                raise DeliveryError(f"batch {attempt.batch_id}: {staging} holds another delivery: {manifest}")
        for staged in [] if is_visible else manifest["files"]:
            file, size = join(staging, staged["name"]), staged["bytes"]
            is_first = publish(file, self.file(name), size=size, claim=claim_of(attempts[0]), access=self._access)
            if not is_first and not self.batches(name):
                raise MissingFileError(f"{self.file(name)} is taken by others, who deliver some of it")
        return [attempt for attempt in attempts if attempt.batch_id not in manifest["batches"]]

    def ended(self, name: str, attempt: Attempt, schema: pa.Schema) -> set[str]:
        """Return the batches that a file has rows of, once that is so for good.

        Where it is not there, it is kept from ever being there: a file that is renamed is taken away before, and where
        a request may come late, the name is taken by a file without rows.

        :param attempt: of one of its batches, by somebody who did not prepare it.
        :param schema: the columns that readers expect in the dataset.
        """
        if (found := self.batches(name)) is not None:
            return found
        delete_folder(self.staging(name), self._access)
        if not renames(self._root, self._access):
            claim = replace(claim_of(attempt), replaces=False)
            placeholder = join(self._root, STAGING, attempt.folder, str(attempt.fencing_token), PLACEHOLDER)
            size = write_table(schema.empty_table(), placeholder, self._access)
            publish(placeholder, self.file(name), size=size, claim=claim, access=self._access)
            delete_file(placeholder, self._access)
        return self.batches(name) or set()
