"""Successive versions of a DAG on one source, and their transforms in Arrow instead of Spark."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.sources.landed import EventTimeBounds
from airflow_provider_coordination.spark import parquet_files, storage
from airflow_provider_coordination.spark.delivery import Stage
from airflow_provider_coordination.spark.layout import BATCH_ID, RecordLayout
from airflow_provider_coordination.spark.payload import EPOCH, MILLISECONDS
from airflow_provider_coordination.spark.rows import (
    ROUTE,
    RowFiles,
    Transformed,
    TransformInput,
    groups_of,
    shared_files_of,
)
from airflow_provider_coordination.spark.sink_settings import DEAD_LETTER, MAIN
from airflow_provider_coordination.spark.sinks import Sink

CHECK = "check"
BAD = b"bad"
"""How a record begins that does not fit the schema, where there is one."""


@dataclass(frozen=True)
class Dag:
    """One version of a DAG.

    :param sinks: where records go; `copy` takes those with an even number.
    :param copies: whether it takes any.
    :param transforms: whether records are transformed, which leaves the version's name in what is written.
    :param schema: whether bad records go to the dead letters.
    :param rejects: records whose number is smaller are late, and go to the dead letters; None for none.
    :param downstream: who acknowledges after the job.
    """

    name: str
    sinks: tuple[str, ...] = (MAIN,)
    copies: bool = True
    transforms: bool = False
    schema: bool = False
    rejects: int | None = None
    downstream: tuple[str, ...] = ()

    @property
    def all_sinks(self) -> tuple[str, ...]:
        return (*((DEAD_LETTER,) if self.schema or self.rejects is not None else ()), *self.sinks)

    @property
    def bounds(self) -> EventTimeBounds | None:
        """What the version's jobs record; numbers are milliseconds since 1970."""
        if self.rejects is None:
            return None
        earliest = EPOCH + timedelta(milliseconds=self.rejects)
        return EventTimeBounds(column="number", type=MILLISECONDS, earliest=earliest, latest=None)


@dataclass(frozen=True)
class Case:
    """What happens.

    :param first: the victim's version of the DAG.
    :param then: the version of every later job.
    :param rejects: whether the downstream check rejects each batch once.
    :param source: what the source holds: `shards`, `items`, or `changes` of a table.
    :param object_store: where files cannot be renamed: `copied` is a move that is a copy and a delete, `s3` has
        conditional writes; empty where they can.
    :param lands_first: whether a round is landed before the one before it is delivered; after that if not.
    """

    name: str
    first: Dag
    then: Dag
    rejects: bool = False
    source: str = "shards"
    object_store: str = ""
    lands_first: bool = False

    def __str__(self) -> str:
        order = "landing-first" if self.lands_first else ""
        return "-".join((self.name, self.source, *filter(None, (self.object_store, order))))


PLAIN = Dag("plain")
OLD = Dag("old", transforms=True)
FIXED = Dag("fixed", transforms=True)
TWO = Dag("two", sinks=(MAIN, "copy"), transforms=True, schema=True)
CHECKED_PLAIN = Dag("plain", downstream=(CHECK,))
CHECKED_OLD = Dag("old", transforms=True, downstream=(CHECK,))
CHECKED_FIXED = Dag("fixed", transforms=True, downstream=(CHECK,))
CHECKED_TWO = Dag("two", sinks=(MAIN, "copy"), transforms=True, downstream=(CHECK,))
LATE = Dag("late", transforms=True, rejects=4)
LATER = Dag("later", transforms=True, rejects=8)
CHECKED_EMPTY = Dag("empty", sinks=(MAIN, "copy"), copies=False, transforms=True, downstream=(CHECK,))

STORIES: dict[str, tuple[Dag, Dag, bool]] = {
    "plain": (PLAIN, PLAIN, False),
    "transformed": (OLD, OLD, False),
    "sinks-and-dead-letters": (TWO, TWO, False),
    "transform-fixed": (OLD, FIXED, False),
    "transform-added": (PLAIN, FIXED, False),
    "transform-dropped": (OLD, PLAIN, False),
    "sink-added": (PLAIN, TWO, False),
    "sink-dropped": (TWO, FIXED, False),
    "checked": (CHECKED_PLAIN, CHECKED_PLAIN, True),
    "rejected-then-fixed": (CHECKED_OLD, CHECKED_FIXED, True),
    "copy-fixed": (CHECKED_EMPTY, CHECKED_TWO, True),
    "copy-emptied": (CHECKED_TWO, CHECKED_EMPTY, True),
    "late": (LATE, LATE, False),
    "late-bound-moved": (LATE, LATER, False),
    "check-dropped": (CHECKED_OLD, OLD, False),
}
CHANGES = ("plain", "sinks-and-dead-letters", "rejected-then-fixed")
"""The stories that shards of changes go through as well: after landing, they are as those of Kinesis."""
CASES = [
    Case(name, first, then, rejects, source, object_store)
    for name, (first, then, rejects) in STORIES.items()
    for source in ("shards", "items", *(("changes",) if name in CHANGES else ()))
    for object_store in (("", "copied", "s3") if source != "changes" else ("",))
]


class ArrowTransformation:
    """A `Transformation` that computes with Arrow what Spark would."""

    def __init__(self, dag: Dag, layout: RecordLayout) -> None:
        self.layout = layout
        self._dag = dag

    def group_compatible(self, parts: Sequence[TransformInput]) -> list[Sequence[TransformInput]]:
        return [parts]

    def left_out(self, parts: Sequence[TransformInput]) -> pa.Table:
        return pa.concat_tables(self._left_out(part) for part in parts)

    def _left_out(self, part: TransformInput) -> pa.Table:
        records = parquet_files.read_table(part.file)
        bad = is_bad(records) if self._dag.schema else nothing(records)
        found = records.append_column("stage", pc.if_else(bad, str(Stage.SCHEMA), str(Stage.TIME)))
        found = found.filter(pc.or_(bad, is_late(records, part.bounds)))
        columns = [BATCH_ID, *self.layout.position, "error", "stage"]
        return found.append_column("error", found.column("stage")).select(columns)

    def write(self, parts: Sequence[TransformInput], folder: str) -> Transformed:
        records = pa.concat_tables(self._fit(part) for part in parts)
        records = records.append_column("made_by", pa.array([self._dag.name] * records.num_rows, pa.string()))
        if len(self._dag.sinks) > 1:
            numbers = [number_of(payload) for payload in records["data"].to_pylist()]
            for n, sink in enumerate(self._dag.sinks):
                takes = [sink == MAIN or (self._dag.copies and number % 2 == 0) for number in numbers]
                records = records.append_column(ROUTE.format(n), pa.array(takes, pa.bool_()))
        storage.delete_folder(folder)
        made = storage.join(folder, "part-0.parquet")
        size = parquet_files.write_table(records, made)
        types = {field.name: str(field.type) for field in records.schema}
        batch_ids, shared = [part.batch_id for part in parts], shared_files_of(parts)
        return Transformed(batch_ids=batch_ids, output=RowFiles(files={made: size}), types=types, shared_files=shared)

    def _fit(self, part: TransformInput) -> pa.Table:
        records = parquet_files.read_table(part.file)
        records = records.filter(pc.invert(is_late(records, part.bounds)))
        return records.filter(pc.invert(is_bad(records))) if part.has_unfit else records

    def error_of(self, part: TransformInput) -> str | None:
        return None

    def select_rows(
        self, transformed: Transformed, number: int, sink: Sink, batch_ids: Collection[str], folder: str
    ) -> RowFiles:
        [whole] = transformed.output.files
        records = parquet_files.read_table(whole)
        if transformed.is_routed:
            records = records.filter(records[ROUTE.format(number)])
        records = records.drop_columns(transformed.ours)
        files, by_group = {}, {}
        groups = groups_of(sink, batch_ids, transformed.shared_files)
        for group, members in groups.items():
            file = storage.join(folder, *([group] if len(groups) > 1 else []), "part-0.parquet")
            files[file] = parquet_files.write_table(
                records.filter(pc.is_in(records[BATCH_ID], pa.array(members))), file
            )
            by_group[group] = [file]
        return RowFiles(files=files, by_group=by_group)


def text_of(payload: str | bytes) -> str:
    """Return the event that a payload is, or that it has as an item."""
    text = payload.decode() if isinstance(payload, bytes) else payload
    return str(json.loads(text)["event"]) if text.startswith("{") else text


def number_of(payload: str | bytes) -> int:
    return int(text_of(payload).rpartition("/")[2])


def nothing(records: pa.Table) -> pa.Array:
    return pa.array([False] * records.num_rows, pa.bool_())


def is_late(records: pa.Table, bounds: EventTimeBounds | None) -> pa.Array:
    if bounds is None or bounds.earliest is None:
        return nothing(records)
    earliest = (bounds.earliest - EPOCH) // timedelta(milliseconds=1)
    return pa.array([number_of(payload) < earliest for payload in records["data"].to_pylist()], pa.bool_())


def is_bad(records: pa.Table) -> pa.Array:
    return pa.array([text_of(payload).startswith(BAD.decode()) for payload in records["data"].to_pylist()], pa.bool_())
