"""Hosts of a group without Spark: their members' jobs begin and end as real ones, and read nothing."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from airflow_provider_coordination.coordination.clock import Clock
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.groups import GroupRequests, MemberRequest
from airflow_provider_coordination.coordination.jobs import JobRecord, Jobs
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.spark.group_application import Applications, Register
from airflow_provider_coordination.spark.group_settings import GroupSettings
from airflow_provider_coordination.spark.outcome import FollowedJob, Outcome
from airflow_provider_coordination.stores import StoreSettings

GROUP = "@small@1a2b3c4d"
TIMEOUT, MARGIN = timedelta(seconds=60), timedelta(seconds=2)


def coordinator(store: CoordinationStore, source: str, owner: str, clock: Clock | None = None) -> SourceCoordinator:
    """Return a coordinator of a source, or of the group."""
    made = SourceCoordinator(store, source, owner, ownership_timeout=TIMEOUT, safety_margin=MARGIN, clock=clock)
    made.initialize()
    return made


def host_settings(owner: str, store: StoreSettings | None = None) -> GroupSettings:
    """Return the settings of a host."""
    return GroupSettings(
        group="small",
        secret_key="",
        source=GROUP,
        owner=owner,
        expires_at=datetime.now(UTC) + timedelta(hours=1),
        store=store or StoreSettings(kind="in_memory"),
        is_followed=True,
    )


class FakeApplications(Applications):
    """Runs jobs that only begin and end.

    :param store: as the process of the host sees it.
    :param work: called with each request in place of reading.
    """

    def __init__(self, store: CoordinationStore, work: Callable[[MemberRequest], None] = lambda request: None) -> None:
        self.store = store
        self.work = work
        self.begun: Counter[str] = Counter()

    @override
    def start(self, followed: FollowedJob) -> None:
        followed.note_application("local-1", None)

    @override
    def run(self, request: MemberRequest, register: Register) -> None:
        followed = FollowedJob()
        record = JobRecord(coordinator(self.store, request.source, request.owner), followed.note_stop)
        followed._record = record
        record.begin()
        register(followed)
        if not followed.is_stopped:
            self.begun[request.owner] += 1
            self.work(request)
        followed.record_outcome(Outcome(exit_code=0))

    @override
    def require_running(self) -> None:
        """It always runs."""


class Requester:
    """Requests jobs as the supervisor of a source does.

    :param store: as its process sees it.
    :param submit_host: called if the group has no host.
    """

    def __init__(self, store: CoordinationStore, submit_host: Callable[[], None] = lambda: None) -> None:
        self._submit_host = submit_host
        self.requests = GroupRequests(coordinator(store, GROUP, "launcher").view)
        self._store = store

    def jobs(self, source: str) -> Jobs:
        return Jobs(coordinator(self._store, source, "supervisor").view)

    def request(self, owner: str, source: str = "clicks") -> None:
        """Record a job, request it, and submit a host if there is none."""
        start_by = datetime.now(UTC) + timedelta(minutes=10)
        self.jobs(source).submit(owner, task="t", digest="", start_by=start_by)
        self.requests.add(owner, source, "")
        if self.requests.host() is None:
            self._submit_host()

    def outcome(self, owner: str, source: str = "clicks") -> Outcome | None:
        """Return how a job ended; None if it has not."""
        job = self.jobs(source).get(owner)
        return None if job is None or job.outcome is None else Outcome.from_mapping(job.outcome)


class InlineThread(threading.Thread):
    """A thread whose work is done where it is started, so that the calls of a process have an order."""

    def start(self) -> None:
        self.run()

    def is_alive(self) -> bool:
        return False

    def join(self, timeout: float | None = None) -> None:
        """It has ended."""
