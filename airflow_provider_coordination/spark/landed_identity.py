"""The identity of a landed file: its name, which contains the fencing token of its lease, and its metadata.

A landed file belongs to one lease at a time. A new owner renames the files of a partition to names with its own token.
So a previous owner, which knows only the old names, can no longer publish them. The metadata of a file names its batch.
So a landed file, even once it is published, is distinguished from the result of a transform.
"""

from __future__ import annotations

import re
import secrets

import pyarrow as pa

from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.parquet_files import schema_of
from airflow_provider_coordination.spark.storage import join, safe_name

LANDED_BATCH = b"coordination.landed_batch"
"""The metadata key of a landed file that names its batch."""


def partition_folder(source_identifier: str, partition_key: str) -> str:
    """Return the folder of a partition's files, below any root."""
    return join(safe_name(source_identifier), safe_name(partition_key))


def file_name(start: str, fencing_token: int) -> str:
    """Return a new name for a file: the start of its range, its writer's fencing token, and a random part.

    The random part is there because a retried Spark task writes its own file.
    """
    return f"{re.sub('[^A-Za-z0-9_-]', '-', start)}.{fencing_token}.{secrets.token_hex(4)}.parquet"


def landed_file(root: str, source_identifier: str, partition_key: str, start: str, fencing_token: int) -> str:
    """Return a new URI for the landed file of a batch that starts at a position, see `file_name`."""
    return join(root, partition_folder(source_identifier, partition_key), file_name(start, fencing_token))


def token_of(file_uri: str) -> int | None:
    """Return the fencing token in a file's name; None if it is not a landed file."""
    parts = _parts(file_uri)
    return int(parts[1]) if len(parts) == 4 and parts[1].isdigit() else None


def identity_of(file_uri: str) -> tuple[str, str] | None:
    """Return the parts of a landed file's name that do not change with the lease; None if it is not a landed file."""
    return None if token_of(file_uri) is None else (_parts(file_uri)[0], _parts(file_uri)[2])


def under_token(file_uri: str, fencing_token: int) -> str:
    """Return the URI of a landed file under another lease."""
    folder, _, _ = file_uri.rpartition("/")
    start, _, *rest = _parts(file_uri)
    return join(folder, ".".join((start, str(fencing_token), *rest)))


def as_landed(table: pa.Table, batch_id: str) -> pa.Table:
    """Return a table with the metadata of a landed file, which names its batch."""
    return table.replace_schema_metadata({**(table.schema.metadata or {}), LANDED_BATCH: batch_id.encode()})


def without_batch(schema: pa.Schema) -> pa.Schema:
    """Return a schema without the metadata that names a batch, for files that are not landed files."""
    kept = {key: value for key, value in (schema.metadata or {}).items() if key != LANDED_BATCH}
    return schema.with_metadata(kept or None)


def batch_landed_in(file_uri: str, access: Access = DEFAULT_ACCESS) -> str | None:
    """Return the batch of a landed file; None if there is no such file, or it is not a landed file."""
    try:
        metadata = schema_of(file_uri, access).metadata or {}
    except (FileNotFoundError, pa.ArrowInvalid):
        return None
    named = metadata.get(LANDED_BATCH)
    return None if named is None else named.decode()


def _parts(file_uri: str) -> list[str]:
    return file_uri.rsplit("/", 1)[-1].split(".")
