"""What is prepared for a table: a manifest for each batch, which says what its commit adds, and is written last.

Manifests lie in a folder below the table that readers pass over: `_staging/<partition>/<fencing token>/<set>`. Who
takes a former owner's manifest takes its right to commit. Data files stay where they are: a commit that somebody is
making may name them. Those that no version names are for the table's maintenance to remove.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.delivery import Attempt, DeliveryError
from airflow_provider_coordination.spark.files import MissingFileError
from airflow_provider_coordination.spark.storage import (
    delete_folder,
    file_size,
    files_below,
    folders_in,
    join,
    read_text,
    remove_if_empty,
    write_text,
)

MANIFEST = "_manifest.json"
STAGING = "_staging"
EMPTY_ABOVE = 2
"""How many folders above that of an attempt go once they are empty: its lease's and its partition's."""


class Staging:
    """The manifests of a table.

    :param root: the table's folder.
    :param access: how it is reached.
    """

    def __init__(self, root: str, access: Access = DEFAULT_ACCESS) -> None:
        self._root = root
        self._access = access

    def folder(self, attempt: Attempt) -> str:
        """Return the folder of an attempt."""
        return join(self._root, STAGING, attempt.folder, str(attempt.fencing_token), attempt.set_id)

    def seal(self, attempt: Attempt, content: Mapping[str, Any]) -> None:
        """Write the manifest of an attempt.

        :param content: what its commit needs, as JSON.
        """
        write_text(
            join(self.folder(attempt), MANIFEST), json.dumps({**_signature(attempt), "content": content}), self._access
        )

    def sealed(self, attempt: Attempt) -> Mapping[str, Any]:
        """Return what the manifest of an attempt holds.

        :raises DeliveryError: if there is none, or it is not whole, or somebody else's.
        """
        folder = self.folder(attempt)
        try:
            manifest = json.loads(read_text(join(folder, MANIFEST), self._access))
            content: Mapping[str, Any] = manifest.pop("content")
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise DeliveryError(
                f"batch {attempt.batch_id}: what was prepared in {folder} is gone or not whole: {error}"
            ) from None
        if manifest != _signature(attempt):
            raise DeliveryError(f"batch {attempt.batch_id}: {folder} holds another delivery: {manifest}")
        return content

    def named(self, field: str) -> set[str]:
        """Return the data files that any manifest names, which a commit may bring.

        :param field: under which manifests have their names.
        :raises DeliveryError: if a manifest is not readable: nobody knows what it names.
        """
        names: set[str] = set()
        for file in files_below(join(self._root, STAGING), self._access):
            if file.endswith(f"/{MANIFEST}"):
                try:
                    manifest = json.loads(read_text(file, self._access))
                    names.update(each[field] for each in manifest["content"]["files"])
                except FileNotFoundError:  # committed, or swept, in this moment
                    continue
                except (ValueError, TypeError, KeyError) as error:
                    raise DeliveryError(
                        f"manifest {file} is not whole: {error}; the next job that delivers removes it"
                    ) from None
        return names

    def discard(self, attempts: Sequence[Attempt]) -> None:
        """Remove the manifests of attempts, and the folders above that hold nothing else."""
        for attempt in attempts:
            folder = self.folder(attempt)
            delete_folder(folder, self._access)
            for _ in range(EMPTY_ABOVE):
                folder, _, _ = folder.rpartition("/")
                remove_if_empty(folder, self._access)

    def sweep(self, folder: str, fencing_token: int) -> list[Mapping[str, Any]]:
        """Remove the manifests of former owners of a partition; see `Delivery.sweep`.

        :returns: what they held, as far as they were whole.
        """
        staged, found = join(self._root, STAGING, folder), []
        for name in folders_in(staged, self._access):
            if name.isdigit() and int(name) < fencing_token:
                for file in files_below(join(staged, name), self._access):
                    if file.endswith(f"/{MANIFEST}"):
                        with suppress(OSError, ValueError):
                            found.append(json.loads(read_text(file, self._access)))
                delete_folder(join(staged, name), self._access)
        return found


class LandedStaging(Staging):
    """What is prepared of landed files that a table takes as they are: kept by the job alone, without a manifest.

    The landed file stands for the manifest: it carries the fencing token of the lease, and the next owner takes it.

    :param contents: what is prepared, by acknowledgment set.
    """

    def __init__(self, root: str, access: Access, contents: dict[str, Mapping[str, Any]]) -> None:
        super().__init__(root, access)
        self._contents = contents

    def seal(self, attempt: Attempt, content: Mapping[str, Any]) -> None:
        """See `Staging.seal`."""
        self._contents[attempt.set_id] = {**_signature(attempt), "content": content}

    def sealed(self, attempt: Attempt) -> Mapping[str, Any]:
        """See `Staging.sealed`.

        :raises MissingFileError: if the landed file is not there any more.
        """
        manifest = self._contents.get(attempt.set_id, {})
        if _signature(attempt).items() <= manifest.items():
            if file_size(attempt.file, self._access) != attempt.batch.file_bytes:
                raise MissingFileError(f"batch {attempt.batch_id}: its landed file {attempt.file} is gone")
            content: Mapping[str, Any] = manifest["content"]
            return content
        raise DeliveryError(f"batch {attempt.batch_id}: nothing is prepared of it")

    def discard(self, attempts: Sequence[Attempt]) -> None:
        """See `Staging.discard`."""
        for attempt in attempts:
            self._contents.pop(attempt.set_id, None)


def _signature(attempt: Attempt) -> dict[str, str | int]:
    return {"batch": attempt.batch_id, "set": attempt.set_id, "fencing_token": attempt.fencing_token}
