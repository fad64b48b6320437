"""What sinks record of the batches that they have, in one form for every kind of sink, so that an audit can compare it.

A sink records a batch with its range, and with the number of its rows, in the same step that makes the batch visible.
The batches of a partition are numbered, and each begins where the one before it ends. So these records show what a sink
has of a partition, and what it lacks, without a second list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from sys import intern
from typing import Any

from airflow_provider_coordination.spark.delivery import Attempt

IsOfSource = Callable[[str], bool]
"""Returns whether batches of a source, given by its identifier, are wanted."""
NOTHING: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class BatchOrigin:
    """Where a batch comes from, as a sink records it.

    :param owner: the owner of the lease under which it was delivered; empty if unknown.
    :param first_arrival: when its first record arrived, as text in ISO 8601; empty if unknown.
    :param last_arrival: when its last record arrived, in the same form.
    """

    owner: str = ""
    first_arrival: str = ""
    last_arrival: str = ""


UNKNOWN_ORIGIN = BatchOrigin()


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """A batch, as a sink records it.

    :param source: the identifier of the source.
    :param partition_key: the partition.
    :param batch_id: the batch.
    :param ordinal: its number among the batches of its partition.
    :param start: the position after which it begins.
    :param end: the position of its end.
    :param records: the number of records that were read.
    :param fencing_token: the fencing token of the lease under which it was delivered.
    :param is_last: whether it ends its partition.
    :param landed_at: when it was recorded in the store, as text in ISO 8601; empty if unknown.
    :param rows: the number of rows that the sink took; None if it was not recorded.
    :param left_out: the number of records that no sink but the dead letters got, by stage.
    :param origin: when its records arrived, and who delivered it.
    """

    source: str
    partition_key: str
    batch_id: str
    ordinal: int
    start: str
    end: str
    records: int
    fencing_token: int
    is_last: bool = False
    landed_at: str = ""
    rows: int | None = None
    left_out: Mapping[str, int] = field(default_factory=lambda: NOTHING)
    origin: BatchOrigin = UNKNOWN_ORIGIN


@dataclass(frozen=True)
class BatchFault:
    """What is wrong with the data of a recorded batch.

    :param text: the fault, such as `file 'x' is gone`.
    :param is_missing: whether none of its rows is there.
    """

    text: str
    is_missing: bool


@dataclass(frozen=True, kw_only=True)
class SinkContents:
    """What a sink has.

    :param location: the sink, for display.
    :param entries: the batches of the wanted sources that its record names, each once; those that a restore of the sink
        has undone are not among them.
    :param faults: the faults that were found, by batch id.
    :param counted: the number of rows of each batch, by batch id; None if rows were not read.
    :param others: what is there and no delivery recorded, or is damaged and of no known batch; sentences.
    :param notes: what others did to the sink; sentences.
    :param since: the time (aware) of the earliest record that is left; None if none has expired.
    :param unknown: the ids of batches of which only the id is known.
    :param replaces_rows: whether rows replace others, so that the rows of a batch cannot be counted later.
    :param is_partial: whether batches without rows are not recorded, so that their numbers have no meaning.
    """

    location: str
    entries: Sequence[LedgerEntry]
    faults: Mapping[str, BatchFault] = field(default_factory=dict)
    counted: Mapping[str, int] | None = None
    others: Sequence[str] = ()
    notes: Sequence[str] = ()
    since: datetime | None = None
    unknown: Sequence[str] = ()
    replaces_rows: bool = False
    is_partial: bool = False


def entry_of(described: Mapping[str, Any]) -> LedgerEntry:
    """Return what a sink records of a batch.

    A sink may have a million batches, so texts that many of them have are kept once.

    :param described: as `describe_batch` made it.
    """
    batch = described["batch"]
    return LedgerEntry(
        source=intern(described["source"]),
        partition_key=intern(described["partition_key"]),
        batch_id=batch["batch_id"],
        ordinal=batch.get("ordinal", 0),
        start=batch["start"],
        end=batch["end"],
        records=batch["records"],
        fencing_token=described["fencing_token"],
        is_last=batch.get("is_last", False),
        landed_at=batch.get("landed_at") or "",
        rows=described.get("rows"),
        left_out=described.get("left_out") or NOTHING,
        origin=BatchOrigin(
            intern(described.get("owner") or ""), batch.get("first_arrival") or "", batch.get("last_arrival") or ""
        ),
    )


def short_description(attempt: Attempt) -> dict[str, Any]:
    """Return what `entry_of` needs of a batch, and no more; a JSON object."""
    # Imports pyarrow, which is slow for a DAG file that names an audit.
    from airflow_provider_coordination.spark.delivered_batches import describe_batch

    described = describe_batch(attempt)
    return {name: value for name, value in described.items() if name not in ("folder", "progress")}


def with_rows(attempts: Sequence[Attempt], manifests: Mapping[str, Mapping[str, Any]]) -> list[Attempt]:
    """Return attempts with the number of rows that a table takes of each batch.

    :param manifests: the content of their manifests, by batch id.
    """
    return [
        replace(attempt, rows=sum(file["batches"] for file in manifests[attempt.batch_id]["files"]))
        for attempt in attempts
    ]


@dataclass(frozen=True, slots=True)
class TableFile:
    """A data file that a table names.

    :param name: its name in the table.
    :param bytes: its size by the table's record; None if that is not known.
    :param rows: the number of its rows by the table's record.
    :param low: the lowest batch id among its rows; None if that is not known.
    :param high: the highest batch id.
    :param found: its size, if it is there.
    """

    name: str
    bytes: int | None
    rows: int
    low: str | None
    high: str | None
    found: int | None

    @property
    def fault(self) -> str:
        """What is wrong with it; empty if nothing is."""
        if self.found is None:
            return f"file {self.name!r} is gone, with {self.rows} rows"
        if self.bytes is not None and self.found != self.bytes:
            return f"file {self.name!r} has {self.found} bytes instead of {self.bytes}: others changed it"
        return ""


def table_faults(files: Iterable[TableFile], rows: Mapping[str, int | None]) -> tuple[dict[str, BatchFault], list[str]]:
    """Return what is wrong with the files of a table: by batch id if a file has one batch, and as sentences otherwise.

    :param rows: the number of rows that the table took of each recorded batch, by batch id.
    """
    texts: dict[str, list[str]] = {}
    missing: Counter[str] = Counter()
    others = []
    for file in files:
        if fault := file.fault:
            if file.low is not None and file.low == file.high and file.low in rows:
                texts.setdefault(file.low, []).append(fault)
                missing[file.low] += file.rows if file.found is None else 0
            else:
                batches = "" if file.low is None else f" of batches between {file.low} and {file.high}"
                others.append(f"{fault}{batches}: restore it from a backup; count the rows of each batch to see which")
    faults = {
        batch_id: BatchFault("; ".join(of), 0 < (rows[batch_id] or 0) <= missing[batch_id])
        for batch_id, of in texts.items()
    }
    return faults, others


def compare_totals(location: str, has: int, recorded: Iterable[int | None]) -> list[str]:
    """Return the sentence that the rows of a table are not those that were delivered; empty if they are, or may be.

    :param has: the number of rows of the table.
    :param recorded: the number of rows that it took of each batch.
    """
    rows = list(recorded)
    if any(each is None for each in rows):
        return []
    brought = sum(each or 0 for each in rows)
    if has == brought:
        return []
    return [
        f"{location} has {has} rows, and {brought} were delivered to it: others wrote or deleted rows; count the rows "
        "of each batch to see which"
    ]
