"""The host of a group: one Spark application that runs the jobs of several sources, each in a separate thread.

Each job is a followed job of its source, as in an application of its own: with leases, progress, sinks, metrics and an
outcome. A job that fails ends its thread only. A host that is killed takes its jobs with it: their items expire, and
their supervisors start new ones.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Protocol

from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.coordination.groups import GroupRequests, MemberRequest
from airflow_provider_coordination.coordination.jobs import JobState
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.spark.application import (
    failed,
    naming_missing_files,
    outcome_of,
    run_application,
)
from airflow_provider_coordination.spark.group_settings import GroupSettings, refusal, unseal
from airflow_provider_coordination.spark.group_targets import GroupTargets
from airflow_provider_coordination.spark.ingestion_job import Observer
from airflow_provider_coordination.spark.job_spark import JobSpark
from airflow_provider_coordination.spark.membership import Membership, SharedStores, working_for
from airflow_provider_coordination.spark.outcome import (
    APPLICATION_MARK,
    EXIT_SUCCESS,
    FollowedJob,
    Outcome,
    followed_job,
)
from airflow_provider_coordination.spark.redaction import Redaction
from airflow_provider_coordination.spark.settings import SettingsReference
from airflow_provider_coordination.spark.shared_landings import SharedLandings
from airflow_provider_coordination.spark.slots import registered_slots
from airflow_provider_coordination.spark.spark_errors import DriverGoneError
from airflow_provider_coordination.spark.worker_daemon import import_for_threads

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
IDLE_SECONDS = 600.0
"""How long a host without a member waits for one."""
LIFETIME_SECONDS = 12 * 3600.0
"""How long a host takes requests. Then a new host does, and this one ends with its last job: its log is as long."""
LAST_LOOK_SECONDS = 5.0
"""How long a host that has ended looks for requests: a store may list a new item some seconds late."""
STOPPED = "the application of its group is stopped"
FAIR = {"spark.scheduler.mode": "FAIR"}
"""Landings wait in one pool, the oldest first. The deliveries of each source have a pool of their own."""
Register = Callable[[FollowedJob], None]
RunMember = Callable[[MemberRequest, Register], None]
"""Runs the job of a member to its end, and registers its record once it has one."""


class Host:
    """Takes the requests of a group, and runs each one's job in a thread.

    :param requests: the requests of the group.
    :param run: runs the job of a request.
    :param stop: set from outside to end the host.
    :param require_running: raises an error if no job can run any more.
    :param note_ending: called once the host will soon take no more requests, so that others start a new one.
    :param clock: measures how long the host runs, and is idle.
    """

    def __init__(
        self,
        requests: GroupRequests,
        run: RunMember,
        stop: threading.Event,
        *,
        require_running: Callable[[], None] = lambda: None,
        note_ending: Callable[[], None] = lambda: None,
        clock: Clock | None = None,
    ) -> None:
        self._requests = requests
        self._run = run
        self._stop = stop
        self._require_running = require_running
        self._note_ending = note_ending
        self._clock = clock or SystemClock()
        self._is_ending = False
        self._lock = threading.Lock()
        self._threads: dict[str, threading.Thread] = {}
        self._followed: dict[str, FollowedJob] = {}

    def serve(self) -> None:
        """Run jobs until the host is stopped, has had none for `IDLE_SECONDS`, or is old and has none left.

        :raises Exception: if no job can run any more.
        """
        begun_at = busy_at = self._clock.monotonic()
        last_look_until: float | None = None
        while not self._stop.is_set():
            self._require_running()
            now = self._clock.monotonic()
            if last_look_until is None and now - begun_at >= LIFETIME_SECONDS:
                self._note_ending()
                last_look_until = now + LAST_LOOK_SECONDS
            takes = last_look_until is None or now <= last_look_until
            if takes:
                self._take_all()
            if self.members:
                busy_at = now
            elif now - busy_at >= (IDLE_SECONDS if takes else 0.0):
                return
            self._stop.wait(POLL_SECONDS)

    def _take_all(self) -> None:
        try:
            self.take()
        except CoordinationError as error:
            log.warning("the requests of the group could not be read, trying again: %s", error)

    def end(self) -> None:
        """Stop all jobs, and wait until they have delivered what they recorded."""
        with self._lock:
            self._is_ending = True
            running = list(self._followed.values())
        for followed in running:
            followed.note_stop(STOPPED)
        for thread in list(self._threads.values()):
            thread.join()

    def take(self) -> None:
        """Take the waiting requests, and start their jobs.

        :raises CoordinationError: if the store is unavailable.
        """
        for request in self._requests.waiting():
            if self._requests.take(request):
                self._start(request)

    @property
    def members(self) -> list[str]:
        """The owners of the jobs that run."""
        for owner in [owner for owner, thread in self._threads.items() if not thread.is_alive()]:
            del self._threads[owner]
        return list(self._threads)

    def _start(self, request: MemberRequest) -> None:
        thread = threading.Thread(target=self._run_alone, args=(request,), name=f"member {request.source}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # there are too many threads
            self._note_failure(request, error)
        else:
            self._threads[request.owner] = thread

    def _run_alone(self, request: MemberRequest) -> None:
        """Run a job to its end; whatever it raises ends this thread only."""
        log.info("member starts: source=%s owner=%s", request.source, request.owner)
        try:
            self._run(request, partial(self._register, request.owner))
        except BaseException as error:
            self._note_failure(request, error)
        finally:
            with self._lock:
                self._followed.pop(request.owner, None)
            log.info("member ended: source=%s owner=%s", request.source, request.owner)

    def _note_failure(self, request: MemberRequest, error: BaseException) -> None:
        """Record the outcome of a job that has no record of its own, or could not write it."""
        outcome = failed(error if isinstance(error, Exception) else RuntimeError(repr(error)))
        with suppress(CoordinationError):  # then the job counts as vanished
            error_text = Redaction().text(outcome.error or "")
            self._requests.record_outcome(request, replace(outcome, error=error_text).to_mapping())

    def _register(self, owner: str, followed: FollowedJob) -> None:
        with self._lock:
            self._followed[owner] = followed
            is_ending = self._is_ending
        if is_ending:
            followed.note_stop(STOPPED)


class Applications(Protocol):
    """Runs the jobs of members, in an application that starts with the first host of the process."""

    def start(self, followed: FollowedJob) -> None:
        """Start the application if it does not run yet; record it for a host."""
        ...

    def run(self, request: MemberRequest, register: Register) -> None:
        """Run a job to its end; see `RunMember`."""
        ...

    def require_running(self) -> None:
        """Check that the application still runs.

        :raises Exception: if it does not.
        """
        ...


class SparkApplication(Applications):
    """The Spark application of a process; see `Applications`. Close it at the end.

    :param settings: the settings of the host.
    :param stores: the stores that the jobs share.
    :param observer: called at the end of each phase of each job; for tests.
    """

    def __init__(self, settings: GroupSettings, stores: SharedStores, observer: Observer) -> None:
        self._settings = settings
        self._stores = stores
        self._observer = observer
        self._spark: JobSpark | None = None
        self._landings: SharedLandings | None = None
        self._redaction = Redaction(settings)
        self._targets = GroupTargets()
        self._lock = threading.Lock()

    @override
    def start(self, followed: FollowedJob) -> None:
        if self._spark is None:
            import_for_threads()
            with naming_missing_files():
                self._spark = JobSpark(f"group {self._settings.group}", conf=FAIR)
            context = self._spark.context
            self._landings = SharedLandings(context, partial(registered_slots, context), self._spark.slots.lasting)
        application, ui = self._spark.context.applicationId, self._spark.context.uiWebUrl
        log.info("%s%s ui=%s", APPLICATION_MARK, application, ui or "none")
        followed.note_application(application, ui)

    @override
    def run(self, request: MemberRequest, register: Register) -> None:
        assert self._spark is not None
        self._settings.check_member(request)
        settings = unseal(request.sealed, self._settings.secret_key, request.owner, SystemClock().now())
        with self._lock:
            self._redaction = self._redaction.with_secrets_of(settings)
            self._redaction.install()
        member = Membership(
            self._spark.context,
            settings.source,
            settings.owner,
            settings.rounds.weight,
            stores=self._stores,
            landings=self._landings,
        )
        with self._lock:
            member.add_pool()
        with working_for(member), followed_job(settings) as followed:
            register(followed)
            try:
                with self._targets.writing(settings):
                    outcome = outcome_of(settings, self._observer, followed)
            except ConfigurationError as error:
                outcome = failed(error)
            followed.record_outcome(outcome)

    @override
    def require_running(self) -> None:
        assert self._spark is not None
        context = self._spark.context
        try:
            is_stopped = context._jsc is None or context._jsc.sc().isStopped()
        except Exception as error:
            raise DriverGoneError from error
        if is_stopped:
            raise CoordinationError("the Spark context was stopped: no transform or function of a member may stop it")

    def close(self) -> None:
        """Stop Spark."""
        if self._spark is not None:
            self._spark.stop()


def main(arguments: Sequence[str] | None = None, observer: Observer = lambda phase: None) -> int:
    """Run the host of a group.

    :param arguments: see `driver_arguments`; by default those of the command line.
    :param observer: called at the end of each phase of each job; for tests.
    :returns: the exit code: success, failed, or configuration.
    """

    def run(settings: GroupSettings, reference: SettingsReference) -> Outcome:
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: stop.set())
        with closing(SharedStores()) as stores, closing(SparkApplication(settings, stores, observer)) as spark:
            return serve_group(settings, reference, stores.get(settings.store), spark, stop)

    return run_application(GroupSettings, arguments, run)


def serve_group(
    settings: GroupSettings,
    reference: SettingsReference | None,
    store: CoordinationStore,
    applications: Applications,
    stop: threading.Event,
) -> Outcome:
    """Serve a group until it is idle, or the host is stopped; return the outcome.

    A host that has recorded its end cannot continue. If a request arrives then, it goes on as another host.

    :param reference: the location of the settings, which are deleted.
    :param stop: set from outside to end the host.
    :raises CoordinationError: if the store is unavailable.
    """
    view = SourceView(store, settings.source, prefix=settings.prefix, safety_margin=settings.safety_margin)
    view.initialize()
    requests = GroupRequests(view)
    serve = partial(_serve_once, requests=requests, applications=applications, stop=stop)
    first, turns = settings.owner, count(2)
    outcome, has_served = serve(settings, reference)
    while has_served and not stop.is_set() and _arrives_late(requests):
        settings = replace(settings, owner=f"{first}:{next(turns)}")
        outcome, has_served = serve(settings, None)
    if outcome.exit_code != EXIT_SUCCESS:
        requests.refuse(refusal(settings.group, outcome).to_mapping())
    return outcome


def _serve_once(
    settings: GroupSettings,
    reference: SettingsReference | None,
    *,
    requests: GroupRequests,
    applications: Applications,
    stop: threading.Event,
) -> tuple[Outcome, bool]:
    """Serve the group under one owner; record the outcome.

    :returns: the outcome, and whether it served the group to its end.
    """
    outcome, has_served = Outcome(exit_code=EXIT_SUCCESS), False
    with followed_job(settings, reference) as followed:
        followed.on_stop(stop.set)
        try:
            has_served = not _has_other_host(requests, settings)
            if has_served:
                applications.start(followed)
                has_served = not _has_other_host(requests, settings)  # one may have begun in that time
            if has_served:
                followed.note_reading()
                host = Host(
                    requests,
                    applications.run,
                    stop,
                    require_running=applications.require_running,
                    note_ending=followed.note_ending,
                )
                try:
                    host.serve()
                finally:
                    followed.note_ending()
                    host.end()
        except Exception as error:
            has_served, outcome = False, failed(error)
            outcome = replace(outcome, error=Redaction(settings).text(outcome.error or ""))
        followed.record_outcome(outcome)
    return outcome, has_served


def _has_other_host(requests: GroupRequests, settings: GroupSettings) -> bool:
    """Return whether another host serves the group, so that this one must not begin.

    Of two that start at the same time, the one with the smaller name goes on. Two hosts at once do no harm.
    """
    other = requests.host(besides=settings.owner)
    if other is None or not (
        other.state is JobState.RUNNING or (other.state is JobState.STARTING and other.owner < settings.owner)
    ):
        return False
    log.info("the group %s has a host already: %s", settings.group, other.owner)
    return True


def _arrives_late(requests: GroupRequests) -> bool:
    """Return whether a request is there, or arrives within some seconds."""
    until = time.monotonic() + LAST_LOOK_SECONDS
    while not requests.waiting():
        if time.monotonic() >= until:
            return False
        time.sleep(POLL_SECONDS)
    return True
