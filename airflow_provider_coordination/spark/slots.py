"""Slots: Spark tasks that land partitions, and say what became of each in one manifest row."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.spark.executor_errors import naming_its_host, running_on_executors
from airflow_provider_coordination.spark.executor_startup import awaiting_executors
from airflow_provider_coordination.spark.shared_locations import Answer, Question, SharedPlaces
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
    places: SharedPlaces | None = None,
) -> list[R]:
    """Land partitions on the executors, each slot's as one task; return what became of each.

    The tasks are those of an RDD: a session and its first query take three seconds more, for classes and code that a
    landing has no use for.

    :param slots: the plans of each slot.
    :param land: lands the partitions of one; it travels pickled.
    :param row: the class of what it returns.
    :param places: what the tasks write to; each executor is asked once whether it shares them. None for what needs no
        check.
    :raises ConfigurationError: if the places are not shared by all workers, or the Python of an executor cannot land.
    :raises SinkAwayError: if an executor does not reach them at present.
    :raises Exception: what Spark raises if a task fails as often as it may; nothing is recorded then, so nothing is
        lost.
    """
    name_job(context, sum(map(len, slots)))
    if places is None:
        texts = [texts for _, texts in _in_slots(context, slots, partial(_landed, land, None))]
    else:
        texts = _in_places(context, slots, land, places)
    return [_read(row, text) for each in texts for text in each]


def check_shared(context: SparkContext, places: SharedPlaces) -> None:
    """Ask executors that did not answer yet, for a landing that Spark itself makes the tasks of.

    :raises ConfigurationError: if the places are not shared by all workers.
    :raises SinkAwayError: if an executor does not reach them at present.
    """
    idle: list[list[object]] = [[] for _ in range(registered_slots(context))]
    land_in_slots(context, idle, _nothing, object, places)


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
    with awaiting_executors(), running_on_executors():
        return rdd.collect()


def _in_places(
    context: SparkContext,
    slots: Sequence[Sequence[P]],
    land: Callable[[Sequence[P]], Iterable[R]],
    places: SharedPlaces,
) -> list[list[str]]:
    """Return the manifest rows of each slot, once every executor that landed has answered for the places."""
    done: list[list[str]] = []
    if (question := places.known) is not None:
        landed = _in_slots(context, slots, partial(_landed, land, question))
        done = [texts for answer, texts in landed if answer is None]
        slots = [slot for slot, (answer, _) in zip(slots, landed, strict=True) if answer is not None]
        if not slots:
            return done
    # Those that have nothing to land are asked as well, as far as Spark gives them a task.
    idle: list[list[P]] = [[] for _ in range(registered_slots(context) - len(slots))]
    with places.asking() as (question, answers):
        landed = _in_slots(context, [*slots, *idle], partial(_landed, land, question))
        answers += [answer for answer, _ in landed if answer is not None]
    return [*done, *(texts for _, texts in landed)]


def _landed(
    land: Callable[[Sequence[P]], Iterable[R]], question: Question | None, slot: int, plans: Iterable[Sequence[P]]
) -> Iterator[tuple[Answer | None, list[str]]]:
    """Return what the executor says of the places, and a slot's manifest rows as texts."""
    answer = None if question is None else question.answer(slot)
    for each in plans:
        # Where the place is another one, nobody would ever see what is landed.
        lands = each and (answer is None or answer.may_land)
        yield answer, [_text(row) for row in land(each)] if lands else []


def _nothing(plans: Sequence[object]) -> Iterable[object]:
    return ()


def _text(row: object) -> str:
    return json.dumps(write_settings(row))


def _read(row: type[R], text: str) -> R:
    return read_settings(row, "manifest row", json.loads(text))
