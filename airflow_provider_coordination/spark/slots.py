"""Slots: Spark tasks that land partitions, and say what became of each in one manifest row."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.spark.executor_python import naming_its_host, running_on_executors
from airflow_provider_coordination.spark.shared_place import Probe, SharedPlace
from airflow_provider_coordination.spark.slot_count import registered_slots

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")

JOB_GROUP = "landing"
"""The Spark job group of landing, so that it alone can be cancelled."""
MANIFEST = "manifest string"
"""The column that slots return, as DDL."""


def land_in_slots(
    context: SparkContext,
    slots: Sequence[Sequence[P]],
    land: Callable[[Sequence[P]], Iterable[R]],
    row: type[R],
    place: SharedPlace | None = None,
) -> list[R]:
    """Land partitions on the executors, each slot's as one task; return what became of each.

    The tasks are those of an RDD: a session and its first query take three seconds more, for classes and code that a
    landing has no use for.

    :param slots: the plans of each slot.
    :param land: lands the partitions of one; it travels pickled.
    :param row: the class of what it returns.
    :param place: where they land; checked by the job's first landing. None for a place that needs no check.
    :raises ConfigurationError: if the place is not shared by all workers, or the Python of an executor cannot land.
    :raises Exception: what Spark raises if a task fails as often as it may; nothing is recorded then, so nothing is
        lost.
    """
    name_job(context, sum(map(len, slots)))
    if place is None or place.is_checked:
        landed = _in_slots(context, slots, partial(_landed, land, None))
    else:
        idle: list[list[P]] = [[] for _ in range(registered_slots(context) - len(slots))]
        with place.probed() as probe:
            landed = _in_slots(context, [*slots, *idle], partial(_landed, land, probe))
            place.check(probe, [answer for answer, _ in landed])
    return [_read(row, text) for _, texts in landed for text in texts]


def check_shared(context: SparkContext, place: SharedPlace) -> None:
    """Check a place by tasks that do nothing else, for a landing that Spark itself makes the tasks of; once.

    :raises ConfigurationError: if the place is not shared by all workers.
    """
    if not place.is_checked:
        land_in_slots(context, [], _nothing, object, place)


def dealt(plans: Sequence[P], slots: int, size: Callable[[P], float] = lambda plan: 1.0) -> list[list[P]]:
    """Deal partitions to at most this many slots, so that each gets about as much to read: the largest first, each to
    the slot that has the least. No slot is empty.

    :param size: how much a partition has to read, above 0; by default all have as much.
    """
    dealt: list[list[P]] = [[] for _ in range(min(slots, len(plans)))]
    sizes = [0.0] * len(dealt)
    for plan in sorted(plans, key=size, reverse=True):
        least = sizes.index(min(sizes))
        dealt[least].append(plan)
        sizes[least] += size(plan)
    return dealt


def name_job(context: SparkContext, partitions: int) -> None:
    """Let what this thread asks Spark for next be known as a landing, and of how many partitions."""
    context.setJobGroup(JOB_GROUP, f"land {partitions} partitions")


def manifest(rows: Iterable[object]) -> pa.RecordBatch:
    """Return rows as a task hands them to Spark."""
    texts = [_text(row) for row in rows]
    return pa.RecordBatch.from_pydict({"manifest": pa.array(texts, pa.string())})


def collected(frame: DataFrame, row: type[R]) -> list[R]:
    """Run the tasks whose manifests a frame holds; return their rows."""
    return [_read(row, each.manifest) for each in frame.collect()]


def _in_slots(
    context: SparkContext, slots: Sequence[Sequence[P]], task: Callable[[int, Iterable[Sequence[P]]], Iterable[T]]
) -> list[T]:
    rdd = context.parallelize(slots, len(slots)).mapPartitionsWithIndex(naming_its_host(task))
    with running_on_executors():
        return rdd.collect()


def _landed(
    land: Callable[[Sequence[P]], Iterable[R]], probe: Probe | None, slot: int, plans: Iterable[Sequence[P]]
) -> Iterator[tuple[str, list[str]]]:
    """Return what a slot says of the place, and its manifest rows as texts."""
    answer = "" if probe is None else probe.answer(slot)
    for each in plans:
        # Where the place is another one, nobody would ever see what is landed.
        lands = each and (probe is None or probe.is_answer(answer))
        yield answer, [_text(row) for row in land(each)] if lands else []


def _nothing(plans: Sequence[object]) -> Iterable[object]:
    return ()


def _text(row: object) -> str:
    return json.dumps(write_settings(row))


def _read(row: type[R], text: str) -> R:
    return read_settings(row, "manifest row", json.loads(text))
