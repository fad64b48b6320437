"""Whether the places that a job's tasks write to are shared by the driver and every executor, and their clocks agree.

Each executor answers once, whenever it joins: in the first slot that it runs, before that lands. So no task of Spark is
begun for the answer alone, and nothing is recorded that only some of the machines can see.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.coordination.partition import format_instant
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.concurrency import raised, side_by_side
from airflow_provider_coordination.spark.delivery import SinkAwayError
from airflow_provider_coordination.spark.outages import is_outage, is_refusal
from airflow_provider_coordination.spark.storage import (
    PROBES,
    calls_at_once,
    delete_files,
    join,
    probe_in,
    read_text,
    remove_if_empty,
    write_text,
)

MAX_CLOCK_DIFFERENCE = timedelta(minutes=5)
"""How far an executor's clock may be from the driver's: AWS refuses requests that are signed further away."""
LOCAL_FOLDERS = "SPARK_LOCAL_DIRS"
"""The variable that Spark gives to the Python of an executor: folders that no other executor has."""


@dataclass(frozen=True)
class Answer:
    """What an executor says of the places.

    :param executor: which one it is.
    :param host: its name.
    :param at: the time there, in seconds since 1970; None where it was not asked.
    :param files: what it left, for the driver to find.
    :param problem: why it cannot work there; empty if it can.
    :param is_passing: whether that may pass by itself.
    """

    executor: str
    host: str
    at: float | None = None
    files: tuple[str, ...] = ()
    problem: str = ""
    is_passing: bool = False

    @property
    def may_land(self) -> bool:
        """Whether what it lands would be seen."""
        return self.at is not None and not self.problem


@dataclass(frozen=True)
class Question:
    """What a slot asks before it lands; it travels to the executor.

    :param known: the executors that answered before.
    :param roots: the places.
    :param name: the name of the file that the driver has written to each, and what it holds; empty if there is none.
    :param access: how the places are reached.
    """

    known: frozenset[str]
    roots: tuple[str, ...]
    name: str = ""
    access: Access = DEFAULT_ACCESS

    def uri(self, root: str) -> str:
        """Return where the driver's file is."""
        return join(root, PROBES, self.name)

    def answer(self, slot: int) -> Answer | None:
        """Return what this executor says; None if it did before."""
        me, host = this_executor(), socket.gethostname()
        if me in self.known:
            return None
        if not self.name:
            return Answer(me, host)
        used = list(side_by_side(self.roots, lambda root: self._use(root, slot), len(self.roots)))
        at, files = SystemClock().now().timestamp(), tuple(file for _, file in used if isinstance(file, str))
        for root, error in used:
            if isinstance(error, Exception):  # whatever it is, the driver shall hear of it
                problem = f"{host} cannot use {root!r}: {error}"
                return Answer(me, host, at, files, problem, is_outage(error) and not is_refusal(error))
        return Answer(me, host, at, files)

    def _use(self, root: str, slot: int) -> str:
        """Read the driver's file, and write one for the driver to find; return its name."""
        if read_text(self.uri(root), self.access) != self.name:
            raise OSError("the driver's file holds something else")
        file = probe_in(root, self.name, str(slot))
        write_text(file, self.name, self.access)
        return file


class SharedPlaces:
    """The places that a job's tasks write to.

    :param roots: paths or URIs.
    :param access: how they are reached.
    :param clock: the driver's.
    """

    def __init__(self, roots: Sequence[str], access: Access = DEFAULT_ACCESS, clock: Clock | None = None) -> None:
        self._roots = tuple(roots)
        self._access = access
        self._clock = clock or SystemClock()
        self._known: frozenset[str] = frozenset()

    @property
    def known(self) -> Question | None:
        """What slots ask where executors have answered before: another executor does not land; None if none has."""
        return Question(self._known, self._roots) if self._known else None

    @contextmanager
    def asking(self) -> Iterator[tuple[Question, list[Answer]]]:
        """Write the driver's files, for slots to answer; afterwards check the answers, and delete the files.

        :returns: the question, and a list for the answers.
        :raises ConfigurationError: naming the place, the hosts and the reasons.
        :raises SinkAwayError: if what an executor met may pass by itself.
        """
        question = Question(self._known, self._roots, secrets.token_hex(8), self._access)
        answers: list[Answer] = []
        self._on_each([question.uri(root) for root in self._roots], lambda uri: self._write(uri, question.name))
        begun = self._clock.now()
        try:
            yield question, answers
            self._check(question, answers, begun)
        finally:
            left = [file for answer in answers for file in answer.files]
            delete_files([*map(question.uri, self._roots), *left], self._access)
            for root in self._roots:
                remove_if_empty(join(root, PROBES), self._access)

    def _check(self, question: Question, answers: Collection[Answer], begun: datetime) -> None:
        seen = set(self._on_each([f for a in answers for f in a.files], lambda file: self._seen(file, question.name)))
        problems = {a.problem: a.is_passing for a in answers if a.problem}
        for answer in answers:
            if unseen := [file for file in answer.files if file not in seen]:
                problems[f"what {answer.host} wrote to {unseen[0]} is not there for the driver"] = False
            if clock := self._wrong_clock(answer, begun):
                raise ConfigurationError(clock)
        lasting = sorted(problem for problem, is_passing in problems.items() if not is_passing)
        if lasting:
            raise ConfigurationError(
                f"path {self._shown} is not shared by all workers: {'; '.join(lasting)}; "
                "give a path or URI that the driver and every executor reach"
            )
        if problems:
            raise SinkAwayError(
                f"path {self._shown} is out of reach for an executor at present: {'; '.join(sorted(problems))}; run "
                "again once that has passed"
            )
        self._known |= {answer.executor for answer in answers}

    @property
    def _shown(self) -> str:
        return " or ".join(map(repr, self._roots))

    def _wrong_clock(self, answer: Answer, begun: datetime) -> str | None:
        """Return what is wrong with an executor's clock: what it says lies between the question and now, or not."""
        if answer.at is None:
            return None
        there, now = datetime.fromtimestamp(answer.at, UTC), self._clock.now()
        difference = there - now if there > now else begun - there
        if difference <= MAX_CLOCK_DIFFERENCE:
            return None
        ours, which = (now, "ahead of") if there > now else (begun, "behind")
        return (
            f"the clock of executor {answer.host} is {difference.total_seconds():.0f} s {which} the driver's: it is "
            f"{format_instant(there)} there and {format_instant(ours)} at {socket.gethostname()}; AWS refuses requests "
            "that are signed by a wrong clock: let NTP set both"
        )

    def _seen(self, file: str, content: str) -> str:
        try:
            return file if read_text(file, self._access) == content else ""
        except (OSError, CoordinationError):
            return ""

    def _write(self, uri: str, content: str) -> str:
        write_text(uri, content, self._access)
        return uri

    def _on_each(self, uris: Sequence[str], act: Callable[[str], str]) -> list[str]:
        """Act on files, a few at once: in a bucket each takes a while."""
        done = side_by_side(uris, act, calls_at_once(self._roots[0], self._access))
        return [raised(result) for _, result in done]


def this_executor() -> str:
    """Return what tells the executor that this process works for from the others of the job."""
    return hashlib.sha256(f"{socket.gethostname()} {os.environ.get(LOCAL_FOLDERS, '')}".encode()).hexdigest()[:16]
