"""A host or a launcher of a group is struck at each call, and each job runs at most once, and one does run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.spark import group_application, outcome
from airflow_provider_coordination.spark.group_application import serve_group
from airflow_provider_coordination.spark.outcome import EXIT_SUCCESS
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.support.freezing import Strike
from tests.support.group_hosts import FakeApplications, InlineThread, Requester, host_settings
from tests.support.striking import STRIKES, calls_of, counted_store, strike_at


@pytest.fixture(autouse=True)
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process makes its calls in the same order, and waits for nothing."""
    for name in ("POLL_SECONDS", "IDLE_SECONDS", "LAST_LOOK_SECONDS"):
        monkeypatch.setattr(group_application, name, 0.0)
    inline = SimpleNamespace(Thread=InlineThread, Lock=threading.Lock, Event=threading.Event)
    monkeypatch.setattr(group_application, "threading", inline)


class StruckGroup:
    """One job of a group, whose launcher or host is struck.

    Its supervisor goes on: a job that did not succeed is given up, and another one requested, under a new owner.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = InMemoryStore()
        self.hosts: list[FakeApplications] = []
        self.submitted = 0
        monkeypatch.setattr(outcome, "open_store", lambda settings: counted_store(self.store))

    def serve(self, owner: str, store: CoordinationStore | None = None) -> None:
        seen = counted_store(self.store) if store is None else store
        self.hosts.append(FakeApplications(seen))
        serve_group(host_settings(owner), None, seen, self.hosts[-1], threading.Event())

    def launch(self, owner: str) -> None:
        Requester(counted_store(self.store), self._note_submitted).request(owner)

    def by_successor(self) -> None:
        """Take over as a supervisor does, with hosts that are not struck."""
        seen = Requester(self.store, self._note_submitted)
        for number in range(2, 5):
            last = seen.outcome(f"job-{number - 1}")
            if last is not None and last.exit_code == EXIT_SUCCESS:
                return
            seen.jobs("clicks").give_up(f"job-{number - 1}", "t", {"exit_code": None, "error": "it vanished"})
            for host in seen.requests.jobs.unfinished():  # its lease runs out
                seen.requests.jobs.end(host.owner, {"exit_code": None, "error": "it vanished"})
            seen.request(f"job-{number}")
            self.serve(f"host-{number}")

    def check(self) -> None:
        runs = [owner for host in self.hosts for owner, times in host.begun.items() for _ in range(times)]
        assert len(runs) == len(set(runs)), f"a job ran twice: {runs}"
        seen = Requester(self.store)
        ended = [seen.outcome(owner) for owner in set(runs)]
        assert any(each is not None and each.exit_code == EXIT_SUCCESS for each in ended), f"no job of {runs} succeeded"
        self.serve("last")
        assert seen.requests.waiting() == []

    def _note_submitted(self) -> None:
        self.submitted += 1


class StruckHost(StruckGroup):
    """The host is struck."""

    def by_victim(self) -> None:
        Requester(self.store).request("job-1")
        self.serve("host-1")


class StruckLauncher(StruckGroup):
    """The launcher is struck."""

    def by_victim(self) -> None:
        self.launch("job-1")


class EndingHost(StruckGroup):
    """A host without members is struck while it ends, and a job is requested then."""

    def by_victim(self) -> None:
        self.serve("host-1")

    def by_successor(self) -> None:
        Requester(self.store, self._note_submitted).request("job-1")


@pytest.mark.parametrize("kind", [StruckHost, StruckLauncher])
def test_struck_group_runs_one_job_once(
    kind: Callable[[pytest.MonkeyPatch], StruckHost | StruckLauncher], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = calls_of(kind(monkeypatch))
    assert len(made) > 3
    for point in range(1, len(made) + 1):
        for strike in STRIKES:
            work = kind(monkeypatch)
            struck = strike_at(point, strike, work)
            try:
                work.check()
            except AssertionError as error:
                raise AssertionError(f"{struck}: {error}") from error


def test_request_to_an_ending_host_is_never_left(monkeypatch: pytest.MonkeyPatch) -> None:
    made = calls_of(EndingHost(monkeypatch))
    for point in range(1, len(made) + 1):
        work = EndingHost(monkeypatch)
        struck = strike_at(point, Strike.FREEZE, work)
        if work.submitted:
            work.serve("host-2")
        runs = [owner for host in work.hosts for owner in host.begun.elements()]
        assert runs == ["job-1"], f"{struck}: {runs}"
