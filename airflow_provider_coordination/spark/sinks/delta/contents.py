"""What a Delta table has of its batches, for an audit: the commits in effect, and the files that its version names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.dataset_compaction import files_by_name
from airflow_provider_coordination.spark.dataset_ledger import count_rows
from airflow_provider_coordination.spark.layout import BATCH_ID
from airflow_provider_coordination.spark.ledger import (
    IsOfSource,
    LedgerEntry,
    SinkContents,
    TableFile,
    compare_totals,
    entry_of,
    table_faults,
)
from airflow_provider_coordination.spark.sinks.delta.log import METADATA, TableLog, batches_of, reaches_back_to
from airflow_provider_coordination.spark.sinks.delta.maintenance import MAINTENANCE
from airflow_provider_coordination.spark.sinks.delta.merges import is_plain
from airflow_provider_coordination.spark.storage import file_size, join

CHANGES = {"WRITE", "DELETE", "UPDATE", "MERGE", "STREAMING UPDATE", "TRUNCATE", "COPY INTO", "RESTORE"}
"""The operations that change rows."""


def contents_of(
    log: TableLog, table: DeltaTable, wanted: IsOfSource, *, reads_rows: bool, access: Access, merges: bool
) -> SinkContents:
    """Return what a table has.

    :param wanted: see `Sink.contents`.
    :param merges: whether rows of the table replace others.
    """
    history = table.history()
    rows: dict[str, int | None] = {}
    entries: list[LedgerEntry] = []
    notes = []
    for commit in log.in_effect(history):
        if not (batches := batches_of(commit)) and _is_of_others(commit):
            at = datetime.fromtimestamp(commit["timestamp"] / 1000, UTC)
            notes.append(
                f"version {commit['version']} of {log.uri}, a {commit['operation']} at {at:%Y-%m-%dT%H:%M:%SZ}, "
                "was made by others"
            )
        for described in batches:
            entry = entry_of(described)
            if entry.batch_id not in rows:  # otherwise a later commit has replaced it
                rows[entry.batch_id] = entry.rows
                if wanted(entry.source):
                    entries.append(entry)
    since = reaches_back_to(history)
    files = list(_files(table, log.uri, access))
    faults, others = table_faults(files, rows)
    if since is None and not merges and is_plain(table):
        others += compare_totals(f"table {log.uri}", sum(file.rows for file in files), rows.values())
    counted: Mapping[str, int] | None = None
    if reads_rows:
        counted, unread = _counted(table, log.uri, files, access)
        others += unread
    return SinkContents(
        location=log.uri,
        entries=entries,
        faults=faults,
        counted=counted,
        others=others,
        notes=notes,
        since=since,
        replaces_rows=merges,
    )


def _is_of_others(commit: Mapping[str, object]) -> bool:
    return commit.get("operation") in CHANGES and METADATA not in commit and MAINTENANCE not in commit


def _files(table: DeltaTable, uri: str, access: Access) -> Iterator[TableFile]:
    found = files_by_name(uri, access)
    actions = pa.table(table.get_add_actions(flatten=True))
    columns = [
        actions.column(name).to_pylist() if name in actions.column_names else [None] * actions.num_rows
        for name in ("path", "size_bytes", "num_records", f"min.{BATCH_ID}", f"max.{BATCH_ID}")
    ]
    for path, size, rows, low, high in zip(*columns, strict=True):
        name = path if path in found else unquote(path)
        if name in found:
            there: int | None = found[name].bytes
        else:  # a clone names files elsewhere
            there = file_size(name, access) if "://" in name or name.startswith("/") else None
        yield TableFile(name, size, rows or 0, low, high, there)


def _counted(table: DeltaTable, uri: str, files: list[TableFile], access: Access) -> tuple[Counter[str], list[str]]:
    """Return the number of rows of each batch, and what cannot be counted."""
    if is_plain(table):
        there = [file.name for file in files if file.found is not None]
        return count_rows(
            [name if "://" in name or name.startswith("/") else join(uri, name) for name in there], access
        )
    query = f"SELECT {BATCH_ID}, COUNT(*) AS n FROM target GROUP BY {BATCH_ID}"
    try:
        counts = pa.table(QueryBuilder().register("target", table).execute(query).read_all())
    except (DeltaError, OSError) as error:
        return Counter(), [f"the rows of table {uri} cannot be read: {error}; repair the table"]
    return Counter(dict(zip(counts[BATCH_ID].to_pylist(), counts["n"].to_pylist(), strict=True))), []
