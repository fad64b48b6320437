"""Landings of several members in an application that they share.

A landing that has little to read mostly waits: for the source, and for its file to be durable. If each held a slot for
that time, two slots could land three sources a second. So a slot lands for as many members as wait for one, each in a
thread, as it does for the partitions of one job.

A landing that fails there is repeated in Spark tasks of its own, so its errors are the same. One that takes long makes
the others of its task wait, so the next ones of its member are alone.

Landings that are alone take turns, the oldest first. Of several slots, they leave one to the landings that share tasks:
a member that is caught up never waits for one that is far behind.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.spark.membership import LANDING, POOL, Landings, SlotTask
from airflow_provider_coordination.spark.spark_errors import with_host_in_import_errors

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger(__name__)

MOST_TOGETHER = 64
"""The maximum number of landings of a Spark task."""
MOST_LOAD = 8 * 2**20
"""The maximum load of a Spark task, in bytes a second: less than a core can land."""
SLOW_SECONDS = 2.0
"""A landing that takes longer is not together with others."""
ALONE_SECONDS = 60.0
"""How long the landings of a member are alone after a slow one, or one that failed."""

SHARED_LANDING = f"{LANDING} of several sources"
"""The Spark job group of these landings. Nothing cancels them: they are short."""


@dataclass(eq=False)
class _Landing:
    """A landing that waits for a slot.

    :param task: lands a slot; see `slots`.
    :param slot: the plans of the slot.
    :param load: how much it reads, in bytes a second.
    :param landed: what the task returned; None if the landing must be repeated alone.
    """

    task: SlotTask
    slot: Sequence[Any]
    load: float
    landed: Future[list[Any] | None] = field(default_factory=Future)


@dataclass(eq=False)
class _Turn:
    """A landing that waits for its turn.

    :param member: the owner of the job that it belongs to.
    :param is_cancelled: whether it must not begin.
    """

    member: str
    is_cancelled: bool = False


class SharedLandings(Landings):
    """Runs the landings of the members of a Spark application; see `Landings`.

    :param context: the Spark context that members share.
    :param count_slots: returns how many Spark tasks run at a time.
    :param lasting_slots: returns how many can run at a time if Spark starts executors for tasks that wait, or None if
        it does not limit them; see `SlotCount.lasting`. Without it, as many as run.
    """

    def __init__(
        self,
        context: SparkContext,
        count_slots: Callable[[], int],
        lasting_slots: Callable[[], int | None] | None = None,
    ) -> None:
        self._context = context
        self._count_slots = count_slots
        self._lasting_slots = lasting_slots or count_slots
        self._waiting: deque[_Landing] = deque()
        self._alone_until: dict[str, float] = {}
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._turns: deque[_Turn] = deque()
        self._taken = 0
        self._turn_changed = threading.Condition()

    @override
    def is_small(self, member: str, slots: int, load: float) -> bool:
        return slots == 1 and load <= MOST_LOAD and time.monotonic() >= self._alone_until.get(member, 0.0)

    @override
    @contextmanager
    def turn(self, member: str, slots: int) -> Iterator[int]:
        count = self._wait_for_turn(_Turn(member), slots)
        try:
            yield count
        finally:
            with self._turn_changed:
                self._taken -= count
                self._turn_changed.notify_all()

    def _wait_for_turn(self, turn: _Turn, slots: int) -> int:
        """Take as many slots as are free, once it is the turn's; return their number."""
        with self._turn_changed:
            self._turns.append(turn)
            try:
                while (free := self._free) < 1 or self._turns[0] is not turn:
                    self._turn_changed.wait()
                    if turn.is_cancelled:
                        raise CoordinationError("the landing was cancelled while it waited for its turn")
            finally:
                self._turns.remove(turn)
                self._turn_changed.notify_all()
            count = min(slots, free)
            self._taken += count
            return count

    @property
    def _free(self) -> int:
        """How many slots landings that are alone may take: all but one, if there are several."""
        slots = self._lasting_slots()
        return (sys.maxsize if slots is None else max(1, slots - 1)) - self._taken

    @override
    def cancel(self, member: str) -> None:
        with self._turn_changed:
            for turn in self._turns:
                turn.is_cancelled = turn.is_cancelled or turn.member == member
            self._turn_changed.notify_all()

    @override
    def run(self, member: str, slot: Sequence[Any], task: SlotTask, load: float) -> list[Any] | None:
        if not self.is_small(member, 1, load):
            return None
        landing = _Landing(task, slot, load)
        with self._changed:
            self._start_threads()
            self._waiting.append(landing)
            self._changed.notify()
        found = landing.landed.result()
        if found is None or found[0] > SLOW_SECONDS:
            why = "failed" if found is None else f"took {found[0]:.1f} s"
            log.info("landings have separate tasks for %.0f s, as one %s: owner=%s", ALONE_SECONDS, why, member)
            self._alone_until[member] = time.monotonic() + ALONE_SECONDS
        return None if found is None else found[1:]

    def _start_threads(self) -> None:
        while len(self._threads) < self._count_slots():
            thread = threading.Thread(target=self._serve, name="shared landings", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self) -> None:
        """Land what waits, again and again."""
        while True:
            together = self._next()
            try:
                self._context.setLocalProperty(POOL, LANDING)
                self._context.setJobGroup(SHARED_LANDING, f"land for {len(together)} sources")
                parts = [[(landing.task, landing.slot) for landing in together]]
                tasks = self._context.parallelize(parts, 1).mapPartitionsWithIndex(with_host_in_import_errors(_land))
                landed = dict(tasks.collect())
            except Exception as error:
                log.warning("%d landings are repeated alone: %s", len(together), error)
                landed = {}
            for number, landing in enumerate(together):
                landing.landed.set_result(landed.get(number))

    def _next(self) -> list[_Landing]:
        """Wait for landings; return the oldest, and as many more as a Spark task can take."""
        with self._changed:
            while not self._waiting:
                self._changed.wait()
            together = [self._waiting.popleft()]
            load = together[0].load
            while self._waiting and len(together) < MOST_TOGETHER:
                load += self._waiting[0].load
                if load > MOST_LOAD:
                    break
                together.append(self._waiting.popleft())
            return together


def _land(index: int, parts: Iterable[Sequence[tuple[SlotTask, Sequence[Any]]]]) -> Iterator[tuple[int, Any]]:
    """Yield the number of each landing, with its seconds and what its task returned; None if it failed."""

    def land(part: tuple[SlotTask, Sequence[Any]]) -> list[Any] | None:
        task, slot = part
        begun = time.monotonic()
        try:
            landed = list(task(index, [slot]))
        except Exception:
            return None
        return [time.monotonic() - begun, *landed]

    for together in parts:
        with ThreadPoolExecutor(len(together)) as pool:
            yield from enumerate(pool.map(land, together))
