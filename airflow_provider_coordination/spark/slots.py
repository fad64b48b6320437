"""Slots: Spark tasks that land partitions, and say what became of each in one manifest row."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from airflow_provider_coordination.settings import read_settings, write_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

P = TypeVar("P")
R = TypeVar("R")

JOB_GROUP = "landing"
"""The Spark job group of landing, so that it alone can be cancelled."""
MANIFEST = "manifest string"
"""The column that slots return, as DDL."""


def land_in_slots(
    spark: SparkSession, slots: Sequence[Sequence[P]], land: Callable[[Sequence[P]], Iterable[R]], row: type[R]
) -> list[R]:
    """Land partitions on the executors, each slot's as one task; return what became of each.

    :param slots: the plans of each slot.
    :param land: lands the partitions of one; it travels pickled.
    :param row: the class of what it returns.
    :raises Exception: what Spark raises if a task fails as often as it may; nothing is recorded then, so nothing is
        lost.
    """
    name_job(spark, sum(map(len, slots)))
    frame = spark.range(0, len(slots), 1, len(slots)).mapInArrow(partial(_land, slots, land), MANIFEST)
    return collected(frame, row)


def slots_to_land(spark: SparkSession, *, leave_slot: bool) -> int:
    """Return how many slots land.

    :param leave_slot: whether one is left to a delivery that goes on meanwhile, if there are two or more; the others
        read its partitions as well.
    """
    return max(1, spark.sparkContext.defaultParallelism - leave_slot)


def dealt(plans: Sequence[P], slots: int, size: Callable[[P], float]) -> list[list[P]]:
    """Deal partitions to at most this many slots, so that each gets about as much to read: the largest first, each to
    the slot that has the least. No slot is empty.

    :param size: how much a partition has to read, above 0.
    """
    dealt: list[list[P]] = [[] for _ in range(min(slots, len(plans)))]
    sizes = [0.0] * len(dealt)
    for plan in sorted(plans, key=size, reverse=True):
        least = sizes.index(min(sizes))
        dealt[least].append(plan)
        sizes[least] += size(plan)
    return dealt


def name_job(spark: SparkSession, partitions: int) -> None:
    """Let what this thread asks Spark for next be known as a landing, and of how many partitions."""
    spark.sparkContext.setJobGroup(JOB_GROUP, f"land {partitions} partitions")


def manifest(rows: Iterable[object]) -> pa.RecordBatch:
    """Return rows as a task hands them to Spark."""
    texts = [json.dumps(write_settings(row)) for row in rows]
    return pa.RecordBatch.from_pydict({"manifest": pa.array(texts, pa.string())})


def collected(frame: DataFrame, row: type[R]) -> list[R]:
    """Run the tasks whose manifests a frame holds; return their rows."""
    return [read_settings(row, "manifest row", json.loads(each.manifest)) for each in frame.collect()]


def _land(
    slots: Sequence[Sequence[P]], land: Callable[[Sequence[P]], Iterable[R]], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for slot in batch.column(0).to_pylist():
            yield manifest(land(slots[slot]))
