"""Slots: Spark tasks that land partitions and return one manifest row for each partition, and how many of them to plan.

The number of slots is what the work needs, limited by the executors that the job has or may get. Spark's dynamic
allocation grows because of waiting tasks, so a job that may have more executors plans more tasks than run at once.
Tasks without an executor run after the others and make the round longer. So the number at most doubles from round to
round, and if no executor is added for some minutes, the job plans only for those that it has.
"""

from __future__ import annotations

import importlib
import json
import logging
import math
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.membership import LANDING, current_membership, landing_group, mark_jobs
from airflow_provider_coordination.spark.shared_locations import (
    LocationCheckRequest,
    LocationCheckResult,
    SharedLocations,
)
from airflow_provider_coordination.spark.spark_errors import (
    running_on_executors,
    waiting_for_executors,
    with_host_in_import_errors,
)

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame


log = logging.getLogger(__name__)

STARTING_SECONDS = 60.0
"""How long after its first round a job expects the executors that its configuration requests."""
GROWING_SECONDS = 300.0
"""How long a job plans tasks for executors that are not there yet; a cluster may have to start machines for them."""
SETTLED_SECONDS = 1800.0
"""How long a job without further executors waits before it requests them again."""
ON_STANDALONE = re.compile(r"spark://|mesos:")
IS_LOCAL = re.compile(r"local($|[\[-])")
DEFAULT_INSTANCES = 2
"""How many executors YARN and Kubernetes start by default."""


P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")
CANCEL_SECONDS = 0.5
"""How often a warm-up that takes too long is cancelled."""


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """The executors that Spark's configuration gives a job, as a number of tasks that run at the same time.

    :param is_dynamic: whether Spark starts executors for waiting tasks, and ends idle executors.
    :param initial: the number once all executors have started that Spark requests without any task; 0 if the
        configuration does not determine it.
    :param maximum: the maximum number; None if the configuration does not determine it.
    """

    is_dynamic: bool = False
    initial: int = 0
    maximum: int | None = None

    @classmethod
    def of(cls, conf: Mapping[str, str]) -> Allocation:
        """Read Spark's configuration.

        :param conf: its properties, including `spark.master`.
        """
        master = conf.get("spark.master", "")
        if IS_LOCAL.match(master):
            return cls()
        is_standalone = ON_STANDALONE.match(master) is not None
        # On a standalone cluster an executor has all cores of its worker, unless the configuration says otherwise.
        cores = _number(conf, "spark.executor.cores") or (None if is_standalone else 1)
        of_task = _number(conf, "spark.task.cpus") or 1
        in_all = _number(conf, "spark.cores.max") if is_standalone else None
        bound = None if in_all is None else _tasks(in_all, cores, of_task)

        def of_executors(count: int | None) -> int | None:
            return None if count is None or cores is None else count * (cores // of_task)

        executors = _number(conf, "spark.executor.instances")
        if conf.get("spark.dynamicAllocation.enabled", "false").lower() != "true":
            if is_standalone:
                return cls(initial=bound or 0)
            return cls(initial=of_executors(DEFAULT_INSTANCES if executors is None else executors) or 0)
        names = ("initialExecutors", "minExecutors")
        first = [executors, *(_number(conf, f"spark.dynamicAllocation.{name}") for name in names)]
        maximum = of_executors(_number(conf, "spark.dynamicAllocation.maxExecutors"))
        bounds = [each for each in (maximum, bound) if each is not None]
        initial = of_executors(max(each or 0 for each in first)) or 0
        return cls(is_dynamic=True, initial=min([initial, *bounds]), maximum=min(bounds, default=None))


@dataclass(frozen=True, kw_only=True)
class Growth:
    """What a job knows about its executors from earlier rounds; times are on one monotonic clock.

    :param started_at: when the first round was planned.
    :param registered: the number of slots when more were planned last.
    :param waits_since: since when more slots have been planned than exist; None if enough exist.
    :param settled_until: until when no more slots are planned than exist.
    :param lasting: the number of slots for the balance among workers, without dynamic allocation.
    :param less_since: since when fewer than `lasting` have existed; None if they do not.
    """

    started_at: float
    registered: int = 0
    waits_since: float | None = None
    settled_until: float = -math.inf
    lasting: int = 0
    less_since: float | None = None


def planned_slots(
    allocation: Allocation, growth: Growth, *, needed: int, registered: int, now: float
) -> tuple[int, Growth]:
    """Return the number of slots for a round, and what to remember for the next round.

    :param needed: the number of slots that the work would use, at least 1.
    :param registered: the number of tasks that the present executors run at the same time.
    :param now: the present time on the monotonic clock.
    """
    available = registered
    if now - growth.started_at < STARTING_SECONDS:
        available = max(available, allocation.initial)
    if not allocation.is_dynamic:
        return available, growth
    wanted = needed if allocation.maximum is None else max(1, min(needed, allocation.maximum))
    if wanted <= available:
        return wanted, replace(growth, waits_since=None)
    if now < growth.settled_until and registered <= growth.registered:
        return available, growth
    if growth.waits_since is None or registered > growth.registered:
        growth = replace(growth, registered=registered, waits_since=now)
    elif now - growth.waits_since >= GROWING_SECONDS:
        return available, replace(growth, waits_since=None, settled_until=now + SETTLED_SECONDS)
    return min(wanted, 2 * available), growth


def lasting_slots(allocation: Allocation, growth: Growth, *, registered: int, now: float) -> tuple[int | None, Growth]:
    """Return how many slots a job has whatever its work, and what to remember. None if that is unknown.

    With dynamic allocation, executors follow the work, and the work follows this number. So it is the maximum, or what
    exists after a cluster has given no more. Otherwise fewer executors count after a minute, as Spark replaces them.

    :param registered: the number of tasks that the present executors run at the same time.
    :param now: the present time on the monotonic clock.
    """
    if allocation.is_dynamic:
        is_settled = now < growth.settled_until
        return max(registered, growth.registered) if is_settled else allocation.maximum, growth
    available = max(registered, allocation.initial) if now - growth.started_at < STARTING_SECONDS else registered
    if available < growth.lasting:
        if growth.less_since is None:
            growth = replace(growth, less_since=now)
        elif now - growth.less_since >= STARTING_SECONDS:
            growth = replace(growth, lasting=available, less_since=None)
        return growth.lasting, growth
    return available, replace(growth, lasting=available, less_since=None)


class SlotCount:
    """The number of slots of a job's rounds; it remembers the executors from round to round.

    :param context: the Spark context; used from the first count on.
    :param clock: a monotonic clock.
    """

    def __init__(self, context: SparkContext, clock: Callable[[], float] = time.monotonic) -> None:
        self._context = context
        self._clock = clock
        self._allocation: Allocation | None = None
        self._growth: Growth | None = None
        self._last = 0

    def of_round(self, needed: int, *, leave_slot: bool) -> int:
        """Return the number of slots that land in a round.

        :param needed: the number of slots that the work would use.
        :param leave_slot: whether to leave one of several slots to a delivery that runs at the same time; the other
            slots then read its partitions as well.
        """
        now, registered = self._clock(), registered_slots(self._context)
        planned, self._growth = planned_slots(*self._known(now), needed=max(1, needed), registered=registered, now=now)
        if planned != self._last:
            log.info("slots of a round: %d, executors run %d tasks, the work needs %d", planned, registered, needed)
            self._last = planned
        # If the work needs fewer slots than exist, the delivery has one already.
        return max(1, planned - 1) if leave_slot and planned >= registered else planned

    def lasting(self) -> int | None:
        """Return how many slots the job has whatever its work, for the balance among workers; None if unknown."""
        now, registered = self._clock(), registered_slots(self._context)
        slots, self._growth = lasting_slots(*self._known(now), registered=registered, now=now)
        return slots

    def _known(self, now: float) -> tuple[Allocation, Growth]:
        if self._allocation is None or self._growth is None:
            self._allocation = Allocation.of(dict(self._context.getConf().getAll()))
            self._growth = Growth(started_at=now)
        return self._allocation, self._growth


def registered_slots(context: SparkContext) -> int:
    """Return the number of tasks that the active executors run at the same time, without leaving ones; at least 1."""
    try:
        spark = context._jsc.sc()
        profile = spark.resourceProfileManager().defaultResourceProfile()
        return max(1, int(spark.maxNumConcurrentTasks(profile)))
    except Exception as error:  # not a public API of Spark, but the public one also counts leaving executors
        log.debug("the number of concurrent tasks could not be read from Spark: %s", error)
        return max(1, context.defaultParallelism)


def _number(conf: Mapping[str, str], name: str) -> int | None:
    text = conf.get(name, "")
    return int(text) if text.isdecimal() else None


def _tasks(cores: int, of_executor: int | None, of_task: int) -> int:
    """Return the number of tasks that a number of cores runs, in executors of a given size."""
    if of_executor is None:
        return cores // of_task
    return cores // of_executor * (of_executor // of_task)


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
    *,
    load: float = math.inf,
) -> list[R]:
    """Land partitions on the executors, one task for each slot; return the rows of all partitions.

    The tasks run on an RDD: a session and its first query take three seconds more, for classes and code that landing
    does not use.

    :param slots: the plans of each slot.
    :param land: lands the partitions of one slot; it travels pickled.
    :param row: the class of the rows that `land` returns.
    :param locations: the locations that the tasks write to; each executor is checked once. None for no check.
    :param load: how much is read, in bytes a second. If it is little, and fits into one slot, the task may land for
        other members as well; otherwise, it waits for its turn among them (`shared_landings`).
    :raises ConfigurationError: if the locations are not shared by all workers, or an executor's Python cannot land.
    :raises SinkUnavailableError: if an executor cannot reach the locations at present.
    :raises Exception: what Spark raises once a task has failed as often as it may; nothing is recorded then, so nothing
        is lost.
    """
    name_job(context, sum(map(len, slots)))
    with _in_turn(slots, load) as slots:
        if locations is None:
            texts = [texts for _, texts in _in_slots(context, slots, partial(_landed, land, None), load)]
        else:
            texts = _in_checked_slots(context, slots, land, locations, load)
    return [_read(row, text) for each in texts for text in each]


def check_locations(context: SparkContext, locations: SharedLocations) -> None:
    """Check locations on the executors that were not checked yet, before a landing whose tasks Spark itself makes.

    :raises ConfigurationError: if the locations are not shared by all workers.
    :raises SinkUnavailableError: if an executor cannot reach the locations at present.
    """
    idle: list[list[object]] = [[] for _ in range(registered_slots(context))]
    land_in_slots(context, idle, _nothing, object, locations)


def check_executors(context: SparkContext, modules: Sequence[str] = ()) -> None:
    """Run a task without work on the executors, before a job acquires leases: their Python must fit the driver's.

    Nothing is run if the tasks have the driver's own Python. An executor that joins later is checked by its first task.

    :param modules: the modules that the job needs there, beside those of every job.
    :raises ConfigurationError: naming the versions found and the remedy.
    """
    if not (IS_LOCAL.match(str(context.master)) and shutil.which(context.pythonExec) == sys.executable):
        _import_on_executors(context, modules)


def warm_up_executors(
    context: SparkContext, modules: Sequence[str], seconds: float, rehearse: Callable[[], object] = lambda: None
) -> bool:
    """Wait until executors have started and imported modules; return whether they did so in time.

    :param modules: the modules that the job needs there, beside those of every job.
    :param seconds: how long to wait.
    :param rehearse: called then; Spark jobs that it runs are cancelled once the time is over.
    :raises ConfigurationError: as `check_executors` does.
    """
    is_late, is_over, is_ready = threading.Event(), threading.Event(), False
    group = landing_group()

    def give_up() -> None:
        left = seconds
        while not is_over.wait(left):  # again and again: the job may not have been submitted yet
            is_late.set()
            context.cancelJobGroup(group)
            left = CANCEL_SECONDS

    watch = threading.Thread(target=give_up, name="warm-up", daemon=True)
    watch.start()
    try:
        _import_on_executors(context, modules)
        is_ready = True
        rehearse()
        _import_on_executors(context, modules)  # Spark ends Python workers that were idle for a minute
    except Exception:
        if not is_late.is_set():
            raise
    finally:
        is_over.set()
        watch.join()  # so that it cannot cancel what follows
    return is_ready


def _import_on_executors(context: SparkContext, modules: Sequence[str]) -> None:
    _name_job(context, "check the Python of the executors")
    idle = [list(modules) for _ in range(registered_slots(context))]
    _in_slots(context, idle, partial(_landed, _import_modules, None))


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


def name_job(context: SparkContext, partitions: int, *, pool: str | None = LANDING) -> None:
    """Describe the next Spark jobs of this thread as a landing of this number of partitions.

    :param pool: their scheduling pool, for a member; None for the source's own.
    """
    _name_job(context, f"land {partitions} partitions", pool)


def _name_job(context: SparkContext, description: str, pool: str | None = LANDING) -> None:
    mark_jobs(context, pool=pool)
    context.setJobGroup(landing_group(), description)


def manifest(rows: Iterable[object]) -> pa.RecordBatch:
    """Return rows in the form in which a task passes them to Spark."""
    texts = [_text(row) for row in rows]
    return pa.RecordBatch.from_pydict({"manifest": pa.array(texts, pa.string())})


def collect_rows(frame: DataFrame, row: type[R]) -> list[R]:
    """Run the tasks whose manifest rows are in a DataFrame; return the rows."""
    return [_read(row, each.manifest) for each in frame.collect()]


@contextmanager
def _in_turn(slots: Sequence[Sequence[P]], load: float) -> Iterator[Sequence[Sequence[P]]]:
    """Wait until a landing may begin, in an application that members share; yield its plans by slot."""
    member = current_membership()
    landings = None if member is None else member.landings
    if member is None or landings is None or landings.is_small(member.owner, len(slots), load):
        yield slots
        return
    with landings.turn(member.owner, len(slots)) as count:
        yield slots if count >= len(slots) else [list(chain(*slots[number::count])) for number in range(count)]


def _in_slots(
    context: SparkContext,
    slots: Sequence[Sequence[P]],
    task: Callable[[int, Iterable[Sequence[P]]], Iterable[T]],
    load: float = math.inf,
) -> list[T]:
    member = current_membership()
    if member is not None and member.landings is not None and len(slots) == 1:
        landed = member.landings.run(member.owner, slots[0], task, load)
        if landed is not None:
            return landed
    rdd = context.parallelize(slots, len(slots)).mapPartitionsWithIndex(with_host_in_import_errors(task))
    with waiting_for_executors(), running_on_executors():
        return rdd.collect()


def _in_checked_slots(
    context: SparkContext,
    slots: Sequence[Sequence[P]],
    land: Callable[[Sequence[P]], Iterable[R]],
    locations: SharedLocations,
    load: float,
) -> list[list[str]]:
    """Return the manifest rows of each slot, once the locations are checked on every executor that landed."""
    done: list[list[str]] = []
    if (request := locations.known_executors_only) is not None:
        landed = _in_slots(context, slots, partial(_landed, land, request), load)
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


def _import_modules(names: Sequence[str]) -> Iterable[object]:
    for name in names:
        importlib.import_module(name)
    return ()


def _nothing(plans: Sequence[object]) -> Iterable[object]:
    return ()


def _text(row: object) -> str:
    return json.dumps(write_settings(row))


def _read(row: type[R], text: str) -> R:
    return read_settings(row, "manifest row", json.loads(text))
