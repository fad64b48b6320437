"""Slots: Spark tasks that land partitions and return one manifest row for each partition."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.shared_locations import (
    LocationCheckRequest,
    LocationCheckResult,
    SharedLocations,
)
from airflow_provider_coordination.spark.slot_count import registered_slots
from airflow_provider_coordination.spark.spark_errors import (
    running_on_executors,
    waiting_for_executors,
    with_host_in_import_errors,
)

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")

JOB_GROUP = "landing"
"""The Spark job group of landing, so that landing can be cancelled without other jobs."""
MANIFEST = "manifest string"
"""The column that slots return, as DDL."""


@dataclass(frozen=True, kw_only=True)
class LandingOptions:
    """The options for landing every partition of a round.

    :param root: the folder for landed files.
    :param access: the credentials for the folder.
    :param seconds: how long a partition is read: to the next position to continue from. None is started after that.
    :param max_bytes: end a batch at the next position to continue from once it has this size.
    :param slot_memory_bytes: the maximum number of bytes that a slot holds of what it reads.
    :param leave_slot: whether to leave one slot to a delivery that runs at the same time.
    """

    root: str
    seconds: float
    max_bytes: int
    slot_memory_bytes: int
    leave_slot: bool = False
    access: Access = DEFAULT_ACCESS


def land_in_slots(
    context: SparkContext,
    slots: Sequence[Sequence[P]],
    land: Callable[[Sequence[P]], Iterable[R]],
    row: type[R],
    locations: SharedLocations | None = None,
) -> list[R]:
    """Land partitions on the executors, one task for each slot; return the rows of all partitions.

    The tasks run on an RDD: a session and its first query take three seconds more, for classes and code that landing
    does not use.

    :param slots: the plans of each slot.
    :param land: lands the partitions of one slot; it travels pickled.
    :param row: the class of the rows that `land` returns.
    :param locations: the locations that the tasks write to; each executor is checked once. None for no check.
    :raises ConfigurationError: if the locations are not shared by all workers, or an executor's Python cannot land.
    :raises SinkUnavailableError: if an executor cannot reach the locations at present.
    :raises Exception: what Spark raises once a task has failed as often as it may; nothing is recorded then, so nothing
        is lost.
    """
    name_job(context, sum(map(len, slots)))
    if locations is None:
        texts = [texts for _, texts in _in_slots(context, slots, partial(_landed, land, None))]
    else:
        texts = _in_checked_slots(context, slots, land, locations)
    return [_read(row, text) for each in texts for text in each]


def check_locations(context: SparkContext, locations: SharedLocations) -> None:
    """Check locations on the executors that were not checked yet, before a landing whose tasks Spark itself makes.

    :raises ConfigurationError: if the locations are not shared by all workers.
    :raises SinkUnavailableError: if an executor cannot reach the locations at present.
    """
    idle: list[list[object]] = [[] for _ in range(registered_slots(context))]
    land_in_slots(context, idle, _nothing, object, locations)


def distribute(plans: Sequence[P], slots: int, size: Callable[[P], float] = lambda plan: 1.0) -> list[list[P]]:
    """Distribute partitions over at most this number of slots, so that each slot has about the same amount to read.

    The largest partition comes first, and each goes to the slot with the least to read. No slot is empty.

    :param size: how much is to be read of a partition, above 0; by default the same for all.
    """
    distributed: list[list[P]] = [[] for _ in range(min(slots, len(plans)))]
    sizes = [0.0] * len(distributed)
    for plan in sorted(plans, key=size, reverse=True):
        emptiest = sizes.index(min(sizes))
        distributed[emptiest].append(plan)
        sizes[emptiest] += size(plan)
    return distributed


def name_job(context: SparkContext, partitions: int) -> None:
    """Describe the next Spark jobs of this thread as a landing of this number of partitions."""
    context.setJobGroup(JOB_GROUP, f"land {partitions} partitions")


def manifest(rows: Iterable[object]) -> pa.RecordBatch:
    """Return rows in the form in which a task passes them to Spark."""
    texts = [_text(row) for row in rows]
    return pa.RecordBatch.from_pydict({"manifest": pa.array(texts, pa.string())})


def collect_rows(frame: DataFrame, row: type[R]) -> list[R]:
    """Run the tasks whose manifest rows are in a DataFrame; return the rows."""
    return [_read(row, each.manifest) for each in frame.collect()]


def _in_slots(
    context: SparkContext, slots: Sequence[Sequence[P]], task: Callable[[int, Iterable[Sequence[P]]], Iterable[T]]
) -> list[T]:
    rdd = context.parallelize(slots, len(slots)).mapPartitionsWithIndex(with_host_in_import_errors(task))
    with waiting_for_executors(), running_on_executors():
        return rdd.collect()


def _in_checked_slots(
    context: SparkContext,
    slots: Sequence[Sequence[P]],
    land: Callable[[Sequence[P]], Iterable[R]],
    locations: SharedLocations,
) -> list[list[str]]:
    """Return the manifest rows of each slot, once the locations are checked on every executor that landed."""
    done: list[list[str]] = []
    if (request := locations.known_executors_only) is not None:
        landed = _in_slots(context, slots, partial(_landed, land, request))
        done = [texts for result, texts in landed if result is None]
        slots = [slot for slot, (result, _) in zip(slots, landed, strict=True) if result is not None]
        if not slots:
            return done
    # Executors that have nothing to land are checked as well, if Spark gives them a task.
    idle: list[list[P]] = [[] for _ in range(registered_slots(context) - len(slots))]
    with locations.checking() as (request, results):
        landed = _in_slots(context, [*slots, *idle], partial(_landed, land, request))
        results += [result for result, _ in landed if result is not None]
    return [*done, *(texts for _, texts in landed)]


def _landed(
    land: Callable[[Sequence[P]], Iterable[R]],
    request: LocationCheckRequest | None,
    slot: int,
    plans: Iterable[Sequence[P]],
) -> Iterator[tuple[LocationCheckResult | None, list[str]]]:
    """Return the executor's check result, and a slot's manifest rows as texts."""
    result = None if request is None else request.run(slot)
    for each in plans:
        # If the executor's location is another one, nobody would ever see the landed files.
        lands = each and (result is None or result.may_land)
        yield result, [_text(row) for row in land(each)] if lands else []


def _nothing(plans: Sequence[object]) -> Iterable[object]:
    return ()


def _text(row: object) -> str:
    return json.dumps(write_settings(row))


def _read(row: type[R], text: str) -> R:
    return read_settings(row, "manifest row", json.loads(text))
