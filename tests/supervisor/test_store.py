"""The stored data of a supervisor: versions of the spec, the leased supervision, and verbs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    ConfigurationError,
    PartitionUpdateError,
    StoreUnavailableError,
    SupervisedElsewhereError,
    SupervisionError,
)
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.supervisor.observation import LagReading, LagSeries
from airflow_provider_coordination.supervisor.store import LEASE, SupervisionStore
from airflow_provider_coordination.supervisor.supervision import Claimant, DetailedState, SupervisedJob
from tests.coordination.unreliable_store import Fault, UnreliableStore
from tests.supervisor.stores import STORES, opening
from tests.support.clock import ManualClock

MARGIN = timedelta(seconds=10)


class StoredSupervision:
    """The supervision of one source in a store."""

    def __init__(self, backend: CoordinationStore) -> None:
        self.clock = ManualClock()
        self.network = UnreliableStore(backend)
        self.network.initialize()
        self.store = self.another()
        self.claimant = Claimant(owner="run-1", dag_id="supervise_clicks", run_at=self.clock.now())

    def another(self) -> SupervisionStore:
        """The same store, as another process sees it."""
        coordinator = SourceCoordinator(self.network, "clicks", "anybody", prefix="test", clock=self.clock)
        coordinator.initialize()
        return SupervisionStore(coordinator.view)

    def before_next_write(self, happens: object) -> None:
        self.network.fault = Fault(before=happens)  # type: ignore[arg-type]


@pytest.fixture(params=STORES)
def supervision(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoredSupervision]:
    backend = opening(request.param, request, tmp_path)()
    yield StoredSupervision(backend)
    backend.close()


# Specs


def test_store_is_empty_before_the_first_submit(supervision: StoredSupervision) -> None:
    assert supervision.store.get() is None
    assert supervision.store.current() is None
    assert supervision.store.history() == []


def test_versions_count_from_one_with_the_latest_first(supervision: StoredSupervision) -> None:
    supervision.store.submit({"n": 1}, by="ann", reason="first")
    supervision.clock.advance(60)
    supervision.store.submit({"n": 2}, by="bob", file_digest="d")
    found = [(v.version, v.spec, v.by, v.reason, v.file_digest) for v in supervision.store.history()]
    assert found == [(2, {"n": 2}, "bob", "", "d"), (1, {"n": 1}, "ann", "first", None)]
    assert supervision.store.history(limit=1) == [supervision.store.current()]
    assert supervision.store.spec(1) == supervision.store.history()[1]
    assert supervision.store.spec(3) is None


def test_unchanged_spec_makes_no_version(supervision: StoredSupervision) -> None:
    first = supervision.store.submit({"n": 1}, by="ann", file_digest="d")
    assert supervision.store.submit({"n": 1}, by="bob") == first
    assert supervision.store.submit({"n": 1}, file_digest="d") == first
    assert supervision.store.submit({"n": 1}, file_digest="e").version == 2


def test_manual_submit_keeps_the_last_file_digest(supervision: StoredSupervision) -> None:
    supervision.store.submit({"n": 1}, file_digest="d")
    supervision.store.submit({"n": 2}, by="ann")
    stored = supervision.store.get()
    assert stored is not None and stored.supervision.file_digest == "d"


def test_concurrent_submits_are_both_kept_in_order(supervision: StoredSupervision) -> None:
    supervision.store.submit({"n": 0})
    supervision.before_next_write(lambda: supervision.another().submit({"n": 1}, by="bob"))
    assert supervision.store.submit({"n": 2}, by="ann").version == 3
    assert [(v.spec, v.by) for v in supervision.store.history()] == [
        ({"n": 2}, "ann"),
        ({"n": 1}, "bob"),
        ({"n": 0}, ""),
    ]


def test_concurrent_first_submits_are_both_kept(supervision: StoredSupervision) -> None:
    supervision.before_next_write(lambda: supervision.another().submit({"n": 1}))
    assert supervision.store.submit({"n": 2}).version == 2


def test_submit_on_a_replaced_version_is_refused_with_its_author(supervision: StoredSupervision) -> None:
    supervision.store.submit({"n": 0})
    supervision.before_next_write(lambda: supervision.another().submit({"n": 1}, by="bob"))
    with pytest.raises(SupervisionError, match=r"version 1 .* was replaced by bob: version 2 is current"):
        supervision.store.submit({"n": 2}, by="ann", replacing=1)
    assert len(supervision.store.history()) == 2


def test_supervisor_without_its_lease_cannot_submit_its_file(supervision: StoredSupervision) -> None:
    other = replace(supervision.claimant, owner="other", dag_id="other_dag")
    supervision.store.acquire(supervision.claimant)
    supervision.clock.advance(timedelta(minutes=2).total_seconds())
    supervision.another().acquire(other)

    with pytest.raises(SupervisedElsewhereError, match="'other_dag'"):
        supervision.store.submit({"n": 1}, file_digest="d", claimant=supervision.claimant)

    assert supervision.store.history() == []
    assert supervision.store.submit({"n": 2}, by="ann").version == 1  # a user may


def test_supervisor_losing_its_lease_during_submit_is_refused(supervision: StoredSupervision) -> None:
    other = replace(supervision.claimant, owner="other", dag_id="other_dag")
    supervision.store.acquire(supervision.claimant)
    supervision.clock.advance(timedelta(minutes=2).total_seconds())
    supervision.before_next_write(lambda: supervision.another().acquire(other))

    with pytest.raises(SupervisedElsewhereError, match="'other_dag'"):
        supervision.store.submit({"n": 1}, file_digest="d", claimant=supervision.claimant)

    assert supervision.store.history() == []


def test_oversized_spec_is_refused_with_its_size(supervision: StoredSupervision) -> None:
    with pytest.raises(ConfigurationError, match="65536"):
        supervision.store.submit({"conf": "x" * 70_000})
    assert supervision.store.history() == []


# Termination


def test_termination_is_a_version_without_a_spec(supervision: StoredSupervision) -> None:
    supervision.store.submit({"n": 1})
    version = supervision.store.terminate(by="ann", reason="moved")
    assert (version.version, version.is_termination, version.by) == (2, True, "ann")
    assert supervision.store.current() == version
    stored = supervision.store.get()
    assert stored is not None
    assert stored.supervision.termination_reason == "moved"
    assert stored.supervision.health.state is DetailedState.TERMINATED  # no job has anything to deliver


def test_terminated_source_is_not_terminated_again(supervision: StoredSupervision) -> None:
    supervision.store.submit({"n": 1})
    supervision.store.terminate()
    with pytest.raises(SupervisionError, match=r"was already terminated at 2026-01-01.*submit a spec"):
        supervision.store.terminate()
    assert len(supervision.store.history()) == 2


def test_unsubmitted_source_cannot_be_terminated(supervision: StoredSupervision) -> None:
    with pytest.raises(SupervisionError, match="has no supervisor"):
        supervision.store.terminate()


def test_spec_after_termination_restarts_and_keeps_the_history(supervision: StoredSupervision) -> None:
    supervision.store.submit({"n": 1})
    held = supervision.store.acquire(supervision.claimant)
    job = SupervisedJob(owner="job-1", spec_version=1, planned_at=supervision.clock.now())
    supervision.store.save(
        held, replace(held.supervision, jobs=(job,), started_at=supervision.clock.now(), totals={"processed": 5})
    )
    supervision.store.terminate()
    supervision.store.submit({"n": 1})
    stored = supervision.store.get()
    assert stored is not None
    assert stored.supervision.terminated_at is stored.supervision.started_at is None
    assert stored.supervision.jobs == (job,)  # it still delivers
    assert stored.supervision.totals == {"processed": 5}
    assert [v.is_termination for v in supervision.store.history()] == [False, True, False]


@pytest.mark.parametrize("verb", ["request_handover", "record_reset"])
def test_verb_is_refused_after_termination(supervision: StoredSupervision, verb: str) -> None:
    with pytest.raises(SupervisionError, match="has no supervisor"):
        getattr(supervision.store, verb)()
    supervision.store.submit({"n": 1})
    supervision.store.terminate()
    with pytest.raises(SupervisionError, match="is terminated"):
        getattr(supervision.store, verb)()


# The lease


def test_turn_read_before_a_verb_writes_nothing(supervision: StoredSupervision) -> None:
    supervision.store.submit({"n": 1})
    held = supervision.store.acquire(supervision.claimant)
    supervision.another().terminate(by="ann")
    with pytest.raises(PartitionUpdateError):
        supervision.store.save(held, held.supervision)
    stored = supervision.store.get()
    assert stored is not None and stored.supervision.terminated_at is not None
    assert stored.claimant == supervision.claimant  # who supervises goes on doing so


def test_verb_succeeds_despite_a_concurrent_turn(supervision: StoredSupervision) -> None:
    supervision.store.submit({"n": 1})
    held = supervision.store.acquire(supervision.claimant)
    supervision.before_next_write(
        lambda: supervision.another().save(held, replace(held.supervision, open_partitions=4))
    )
    assert supervision.store.request_handover().open_partitions == 4


def test_lease_expires_and_is_renewed_by_its_owner(supervision: StoredSupervision) -> None:
    held = supervision.store.acquire(supervision.claimant)
    assert held.leased_until == supervision.clock.now() + LEASE
    supervision.clock.advance(LEASE.total_seconds() / 3)
    assert supervision.store.acquire(supervision.claimant).leased_until == held.leased_until
    supervision.clock.advance(LEASE.total_seconds() / 3)
    renewed = supervision.store.acquire(supervision.claimant)
    assert renewed.leased_until == supervision.clock.now() + LEASE
    assert renewed.is_supervised(supervision.clock.now())
    assert not renewed.is_supervised(supervision.clock.now() + LEASE)


@pytest.mark.parametrize(
    ("seconds", "try_number", "dag_id", "taken"),
    [
        (1, 1, "supervise_clicks", True),
        (0, 2, "supervise_clicks", True),
        (0, 1, "supervise_clicks", True),
        (-1, 1, "supervise_clicks", False),
        (0, 0, "supervise_clicks", False),
        (3600, 1, "my_clicks", False),
    ],
    ids=["a later run", "a later try", "the same try", "an earlier run", "an earlier try", "another DAG"],
)
def test_running_lease_yields_only_to_later_tries_of_its_dag(
    supervision: StoredSupervision, seconds: int, try_number: int, dag_id: str, taken: bool
) -> None:
    supervision.store.acquire(supervision.claimant)
    run_at = supervision.claimant.run_at + timedelta(seconds=seconds)
    other = Claimant(owner="run-2", dag_id=dag_id, run_at=run_at, try_number=try_number)
    if taken:
        assert supervision.another().acquire(other).claimant == other
    else:
        with pytest.raises(SupervisedElsewhereError):
            supervision.another().acquire(other)
        supervision.clock.advance((LEASE + MARGIN).total_seconds())
        assert supervision.another().acquire(other).claimant == other


def test_previous_owner_cannot_write(supervision: StoredSupervision) -> None:
    held = supervision.store.acquire(supervision.claimant)
    later = replace(supervision.claimant, owner="run-2", try_number=2)
    supervision.another().acquire(later)
    with pytest.raises(PartitionUpdateError):
        supervision.store.save(held, held.supervision)


def test_concurrent_acquisitions_have_a_single_winner(supervision: StoredSupervision) -> None:
    other = replace(supervision.claimant, owner="run-2", dag_id="my_clicks")
    supervision.store.submit({"n": 1})
    supervision.before_next_write(lambda: supervision.another().acquire(other))
    with pytest.raises(SupervisedElsewhereError, match=r"'my_clicks'.*'supervise_clicks'"):
        supervision.store.acquire(supervision.claimant)


def test_released_lease_is_free_for_all(supervision: StoredSupervision) -> None:
    supervision.store.submit({"n": 1})
    supervision.store.acquire(supervision.claimant)
    supervision.another().release(replace(supervision.claimant, owner="somebody else"))
    assert supervision.store.get().claimant == supervision.claimant  # type: ignore[union-attr]
    supervision.store.release(supervision.claimant)
    other = replace(supervision.claimant, owner="run-2", dag_id="my_clicks")
    assert supervision.store.acquire(other).supervision.spec_version == 1


def test_unleased_supervision_cannot_be_saved(supervision: StoredSupervision) -> None:
    supervision.store.submit({"n": 1})
    stored = supervision.store.get()
    assert stored is not None
    with pytest.raises(PartitionUpdateError, match="acquire it first"):
        supervision.store.save(stored, stored.supervision)


def test_submit_with_a_lost_response_is_complete_or_absent(supervision: StoredSupervision) -> None:
    supervision.store.submit({"n": 1})
    supervision.network.fault = Fault(answers=False)
    with pytest.raises(StoreUnavailableError):
        supervision.store.submit({"n": 2})
    current = supervision.store.current()
    assert current is not None and (current.version, current.spec) == (2, {"n": 2})


# The lag


def test_lag_is_stored_apart_from_the_supervision(supervision: StoredSupervision) -> None:
    assert supervision.store.lag() == LagSeries()
    series = LagSeries().with_reading(LagReading(at=supervision.clock.now(), partitions={"S0": 5, "S1": None}))
    supervision.store.save_lag(series)
    assert supervision.another().lag() == series
    supervision.clock.advance(30)
    supervision.store.save_lag(series.with_reading(LagReading(at=supervision.clock.now(), partitions={"S0": 7})))
    assert [point.oldest_ms for point in supervision.store.lag().points] == [5, 7]
    assert supervision.store.get() is None
