"""Checks that the driver and every executor share the locations that tasks write to, and that their clocks agree.

Each executor is checked once, whenever it joins: in the first slot that it runs, before that slot lands anything. So no
Spark task starts only for the check, and nothing is recorded that only some of the machines can see.
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
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError, result_or_raise
from airflow_provider_coordination.coordination.partition import format_instant
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.concurrency import side_by_side
from airflow_provider_coordination.spark.delivery import SinkUnavailableError
from airflow_provider_coordination.spark.outages import is_temporary
from airflow_provider_coordination.spark.storage import (
    PROBES,
    calls_at_once,
    delete_files,
    join,
    new_probe,
    read_text,
    remove_if_empty,
    write_text,
)

MAX_CLOCK_DIFFERENCE = timedelta(minutes=5)
"""How far an executor's clock may differ from the driver's: AWS refuses requests with a larger difference."""
LOCAL_FOLDERS = "SPARK_LOCAL_DIRS"
"""The environment variable that Spark sets for an executor's Python: folders that no other executor has."""


@dataclass(frozen=True)
class LocationCheckResult:
    """The result of a location check on one executor.

    :param executor: the executor's id, see `this_executor`.
    :param host: the executor's host name.
    :param at: the executor's time, in seconds since 1970; None if the request did not include a check.
    :param files: the files that the executor wrote, for the driver to find.
    :param problem: why the executor cannot use a location; empty if it can use all.
    :param is_temporary: whether the problem may pass on its own.
    """

    executor: str
    host: str
    at: float | None = None
    files: tuple[str, ...] = ()
    problem: str = ""
    is_temporary: bool = False

    @property
    def may_land(self) -> bool:
        """Whether the driver would see the files that the executor lands."""
        return self.at is not None and not self.problem


@dataclass(frozen=True)
class LocationCheckRequest:
    """A location check that a slot makes before it lands; it travels to the executor.

    :param known: the ids of the executors that were checked before.
    :param roots: the locations.
    :param name: the name, and the content, of the file that the driver wrote to each location; empty if it wrote none.
    :param access: the credentials for the locations.
    """

    known: frozenset[str]
    roots: tuple[str, ...]
    name: str = ""
    access: Access = DEFAULT_ACCESS

    def uri(self, root: str) -> str:
        """Return the URI of the driver's file in a location."""
        return join(root, PROBES, self.name)

    def run(self, slot: int) -> LocationCheckResult | None:
        """Check the locations on this executor; return None if it was checked before.

        :param slot: the number of the slot, which becomes part of the file names.
        """
        executor, host = this_executor(), socket.gethostname()
        if executor in self.known:
            return None
        if not self.name:
            return LocationCheckResult(executor, host)
        used = list(side_by_side(self.roots, lambda root: self._use(root, slot), len(self.roots)))
        at, files = SystemClock().now().timestamp(), tuple(file for _, file in used if isinstance(file, str))
        for root, error in used:
            if isinstance(error, Exception):  # every error is reported to the driver
                problem = f"{host} cannot use {root!r}: {error}"
                return LocationCheckResult(executor, host, at, files, problem, is_temporary(error))
        return LocationCheckResult(executor, host, at, files)

    def _use(self, root: str, slot: int) -> str:
        """Read the driver's file, and write one for the driver to find; return its name."""
        if read_text(self.uri(root), self.access) != self.name:
            raise OSError("the driver's file has other content")
        file = new_probe(root, self.name, str(slot))
        write_text(file, self.name, self.access)
        return file


class SharedLocations:
    """The locations that a job's tasks write to.

    :param roots: paths or URIs.
    :param access: the credentials for the locations.
    :param clock: the driver's clock.
    """

    def __init__(self, roots: Sequence[str], access: Access = DEFAULT_ACCESS, clock: Clock | None = None) -> None:
        self._roots = tuple(roots)
        self._access = access
        self._clock = clock or SystemClock()
        self._known: frozenset[str] = frozenset()

    @property
    def known_executors_only(self) -> LocationCheckRequest | None:
        """The request with which only executors that were checked before land; None if none was checked yet."""
        return LocationCheckRequest(self._known, self._roots) if self._known else None

    @contextmanager
    def checking(self) -> Iterator[tuple[LocationCheckRequest, list[LocationCheckResult]]]:
        """Write the driver's files, for slots to check; afterwards check the results, and delete the files.

        :returns: the request, and a list for the results.
        :raises ConfigurationError: naming the location, the hosts and the reasons.
        :raises SinkUnavailableError: if an executor's problem may pass on its own.
        """
        request = LocationCheckRequest(self._known, self._roots, secrets.token_hex(8), self._access)
        results: list[LocationCheckResult] = []
        self._on_each([request.uri(root) for root in self._roots], lambda uri: self._write(uri, request.name))
        started = self._clock.now()
        try:
            yield request, results
            self._check(request, results, started)
        finally:
            left = [file for result in results for file in result.files]
            delete_files([*map(request.uri, self._roots), *left], self._access)
            for root in self._roots:
                remove_if_empty(join(root, PROBES), self._access)

    def _check(
        self, request: LocationCheckRequest, results: Collection[LocationCheckResult], started: datetime
    ) -> None:
        files = [file for result in results for file in result.files]
        existing = set(self._on_each(files, lambda file: self._found(file, request.name)))
        problems = {result.problem: result.is_temporary for result in results if result.problem}
        for result in results:
            if missing := [file for file in result.files if file not in existing]:
                problems[f"the driver does not find the file that {result.host} wrote, {missing[0]}"] = False
            if clock := self._wrong_clock(result, started):
                raise ConfigurationError(clock)
        lasting = sorted(problem for problem, is_temporary in problems.items() if not is_temporary)
        if lasting:
            raise ConfigurationError(
                f"path {self._roots_text} is not shared by all workers: {'; '.join(lasting)}; "
                "give a path or URI that the driver and every executor reach"
            )
        if problems:
            raise SinkUnavailableError(
                f"path {self._roots_text} is unavailable for an executor: {'; '.join(sorted(problems))}; run again "
                "once the outage is over"
            )
        self._known |= {result.executor for result in results}

    @property
    def _roots_text(self) -> str:
        return " or ".join(map(repr, self._roots))

    def _wrong_clock(self, result: LocationCheckResult, started: datetime) -> str | None:
        """Return what is wrong with an executor's clock, whose time should lie between the request and now.

        :returns: None if the clock is right.
        """
        if result.at is None:
            return None
        executor_time, now = datetime.fromtimestamp(result.at, UTC), self._clock.now()
        difference = executor_time - now if executor_time > now else started - executor_time
        if difference <= MAX_CLOCK_DIFFERENCE:
            return None
        driver_time, direction = (now, "ahead of") if executor_time > now else (started, "behind")
        return (
            f"the clock of executor {result.host} is {difference.total_seconds():.0f} s {direction} the driver's: it "
            f"is {format_instant(executor_time)} there and {format_instant(driver_time)} on {socket.gethostname()}; "
            "AWS refuses requests that are signed with a wrong clock: let NTP set both"
        )

    def _found(self, file: str, content: str) -> str:
        try:
            return file if read_text(file, self._access) == content else ""
        except (OSError, CoordinationError):
            return ""

    def _write(self, uri: str, content: str) -> str:
        write_text(uri, content, self._access)
        return uri

    def _on_each(self, uris: Sequence[str], act: Callable[[str], str]) -> list[str]:
        """Act on files, several at the same time: in a bucket, each call takes a while."""
        done = side_by_side(uris, act, calls_at_once(self._roots[0], self._access))
        return [result_or_raise(result) for _, result in done]


def this_executor() -> str:
    """Return an id that distinguishes this process's executor from the other executors of the job."""
    return hashlib.sha256(f"{socket.gethostname()} {os.environ.get(LOCAL_FOLDERS, '')}".encode()).hexdigest()[:16]
