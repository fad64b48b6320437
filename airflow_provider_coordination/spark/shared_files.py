"""Shared files, which hold the rows of several batches: which batches share one, its name, and its publication.

A shared file's name is recorded with each of its batches, in their partitions' progress, before the file can become
visible. So the next owner that delivers one of them knows where to find it. If the file exists, it holds the batch or
does not, and that never changes. If it does not exist, it is first prevented from ever appearing; then the batch gets a
file of its own.

The name is the path of the file's staging folder, under the lease of the first of its batches; its last part names the
file that readers see. No name is used twice.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.delivery import Attempt, DeliveryError
from airflow_provider_coordination.spark.files import Claim, MissingFileError
from airflow_provider_coordination.spark.layout import BATCH_ID
from airflow_provider_coordination.spark.parquet_files import values_of, write_table
from airflow_provider_coordination.spark.sinks import Sink
from airflow_provider_coordination.spark.staging import MANIFEST, STAGING, listed
from airflow_provider_coordination.spark.storage import (
    delete_file,
    delete_folder,
    has_exclusive_names,
    join,
    publish,
    read_text,
    renames,
    write_text,
)

PLACEHOLDER = "placeholder.parquet"
"""The file without rows that takes the name of a shared file that must never appear."""


def may_share(attempt: Attempt) -> bool:
    """Return whether a batch may be delivered in a shared file.

    Only its first delivery may: an earlier delivery may have left a file of its own, which must be replaced, or a
    shared file, which must be checked.
    """
    return not attempt.batch.redeliver and attempt.batch.shared_file is None


def max_shared_bytes(attempt: Attempt, sinks: Iterable[Sink]) -> int:
    """Return the maximum number of landed bytes in a batch's shared file; 0 if the batch must have files of its own.

    :param sinks: the sinks that are to take the batch.
    """
    rooms = [sink.shared_bytes(attempt) for sink in sinks if sink.shares_files]
    return min(rooms, default=0) if may_share(attempt) else 0


def assign_shared_files(attempts: Sequence[Attempt], room: Callable[[Attempt], int]) -> list[Attempt]:
    """Return attempts with the names of their batches' shared files, if any; each batch is in one file as a whole.

    :param room: returns the maximum number of landed bytes in a batch's shared file; 0 for no shared file.
    """
    files: list[list[Attempt]] = []
    held = 0
    for attempt in attempts:
        size, max_bytes = attempt.batch.file_bytes, room(attempt)
        if max_bytes and files and held and held + size <= max_bytes:
            files[-1].append(attempt)
            held += size
        else:
            files.append([attempt])
            held = size if max_bytes else 0
    return [named for file in files for named in (with_shared_file(file) if len(file) > 1 else file)]


def with_shared_file(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return attempts with a new name for the file that their batches share."""
    name = new_shared_file(attempts[0])
    return [replace(attempt, shared_file=name) for attempt in attempts]


def new_shared_file(first: Attempt) -> str:
    """Return a new name for a shared file.

    :param first: the attempt of the first of its batches.
    """
    return f"{first.folder}/{first.fencing_token}/{first.set_id}.{secrets.token_hex(4)}"


def by_shared_file(attempts: Iterable[Attempt], *, earlier: bool = False) -> dict[str, list[Attempt]]:
    """Return the attempts whose batches are in a shared file, by its name.

    :param earlier: whether to use the shared file of an earlier delivery.
    """
    by_name: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        name = attempt.batch.shared_file if earlier else attempt.shared_file
        if name is not None:
            by_name.setdefault(name, []).append(attempt)
    return by_name


def claim_of(attempt: Attempt) -> Claim:
    """Return the claim with which an attempt publishes its files."""
    return Claim(fencing_token=attempt.fencing_token, set_id=attempt.set_id, replaces=attempt.batch.redeliver)


@dataclass(frozen=True, kw_only=True)
class CombinedBatch:
    """The shared file in which the rows of a batch are prepared.

    :param shared_file: see `Attempt.shared_file`.
    :param columns: the columns of the file.
    """

    shared_file: str
    columns: pa.Schema


@dataclass(frozen=True)
class SharedManifest:
    """What a shared file was prepared for.

    :param name: the name of the file that readers see.
    :param batches: by batch id, the acknowledgment set, and the number of rows.
    :param files: the staged file, with its size in bytes; empty if no batch has a row.
    """

    name: str
    batches: Mapping[str, tuple[str, int]]
    files: Sequence[Mapping[str, Any]]

    def files_of(self, attempt: Attempt) -> dict[str, int]:
        """Return the file that readers see if it holds rows of a batch, with its size in bytes."""
        _, rows = self.batches.get(attempt.batch_id, ("", 0))
        return dict.fromkeys([self.name], sum(staged["bytes"] for staged in self.files)) if rows else {}


class SharedFiles:
    """The shared files of one dataset.

    :param root: the dataset's folder.
    :param access: the credentials for the folder.
    """

    def __init__(self, root: str, access: Access = DEFAULT_ACCESS) -> None:
        self._root = root
        self._access = access

    def takes(self, attempt: Attempt) -> bool:
        """Return whether a batch may be in a shared file.

        It may not if a previous owner's late request could still give the batch a file of its own.
        """
        is_alone = not attempt.has_previous_owners or renames(self._root, self._access)
        return is_alone and has_exclusive_names(self._root, self._access)

    def file(self, name: str) -> str:
        """Return the URI of the file that readers see."""
        return join(self._root, f"{name.rsplit('/', 1)[-1]}.parquet")

    def staging(self, name: str) -> str:
        """Return the folder where the file is prepared."""
        return join(self._root, STAGING, name)

    def batches(self, name: str) -> set[str] | None:
        """Return the batches whose rows are in a file; None if readers see no such file."""
        try:
            return set(values_of(self.file(name), BATCH_ID, self._access))
        except FileNotFoundError:
            return None

    def seal(self, name: str, rows: Mapping[str, int], attempts: Sequence[Attempt], files: Mapping[str, int]) -> None:
        """Write the manifest of a prepared file, once the file is complete.

        :param rows: the number of rows of each batch.
        :param files: the file that holds them, with its size in bytes; empty if no batch has a row.
        """
        manifest = {
            "batches": {attempt.batch_id: [attempt.set_id, rows[attempt.batch_id]] for attempt in attempts},
            "files": listed(self.staging(name), files),
        }
        write_text(join(self.staging(name), MANIFEST), json.dumps(manifest), self._access)

    def sealed(self, name: str) -> SharedManifest | None:
        """Return what a file was prepared for; None if it is not prepared, or another owner has removed that.

        :raises DeliveryError: if the manifest is incomplete.
        """
        staging = self.staging(name)
        try:
            manifest = json.loads(read_text(join(staging, MANIFEST), self._access))
            return SharedManifest(
                self.file(name).rpartition("/")[2],
                {batch_id: (set_id, rows) for batch_id, (set_id, rows) in manifest["batches"].items()},
                manifest["files"],
            )
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise DeliveryError(f"the manifest in {staging} is incomplete: {error}") from None

    def commit(self, name: str, attempts: Sequence[Attempt], manifest: SharedManifest | None) -> list[Attempt]:
        """Make a file visible, unless it is visible already.

        :param attempts: the attempts of some of its batches. All its batches are recorded with its name.
        :param manifest: what it was prepared for, see `sealed`.
        :returns: the attempts for whose batches the file was not prepared.
        :raises DeliveryError: if the manifest is another delivery's.
        :raises MissingFileError: if the prepared file is gone, or another owner makes sure that it never appears.
        """
        # If names are exclusive, the store refuses a late write.
        is_visible, staging = renames(self._root, self._access) and bool(self.batches(name)), self.staging(name)
        if manifest is None:
            if is_visible or self.batches(name):
                return []
            raise MissingFileError(
                f"the staged files in {staging} are gone: another owner delivers some of their batches"
            )
        for attempt in attempts:
            set_id, _ = manifest.batches.get(attempt.batch_id, (attempt.set_id, 0))
            if set_id != attempt.set_id:
                raise DeliveryError(
                    f"batch {attempt.batch_id}: the staged data in {staging} belongs to another delivery: {manifest}"
                )
        for staged in [] if is_visible else manifest.files:
            file, size = join(staging, staged["name"]), staged["bytes"]
            is_first = publish(file, self.file(name), size=size, claim=claim_of(attempts[0]), access=self._access)
            if not is_first and not self.batches(name):
                raise MissingFileError(
                    f"another owner has taken the name {self.file(name)}, and delivers some of its batches"
                )
        return [attempt for attempt in attempts if attempt.batch_id not in manifest.batches]

    def ended(self, name: str, attempt: Attempt, schema: pa.Schema) -> set[str]:
        """Return the batches whose rows are in a file, once that can no longer change.

        If the file does not exist, it is prevented from ever appearing: its prepared file is deleted, so that it cannot
        be renamed; and if a late request is possible, a file without rows takes its name.

        :param attempt: the attempt of one of its batches, by an owner that did not prepare the file.
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
