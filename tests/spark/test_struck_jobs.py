"""A job is struck at a call to the store, to files or to its source, and nothing is lost, doubled or changed.

Each run takes other calls, by its seed. `tests/deep/test_struck_jobs.py` takes all.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from airflow_provider_coordination.coordination.errors import StoreUnavailableError
from airflow_provider_coordination.spark.sink_settings import DEAD_LETTER, MAIN
from tests.support.dag_versions import CASES, CHECKED_OLD, FIXED, OLD, PLAIN, TWO, Case, Dag
from tests.support.freezing import Calls, Strike
from tests.support.history import History
from tests.support.seed import seeded
from tests.support.struck_jobs import StruckItems, StruckShards, StruckSource, live

log = logging.getLogger(__name__)

POINTS = 1
"""How many calls of each case are tried."""


@pytest.mark.integration
@pytest.mark.share(0.3)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_struck_calls_lose_double_and_change_nothing(case: Case, tmp_path: Path) -> None:
    chosen = seeded(case)
    case = replace(case, lands_first=chosen.random() < 0.5)
    none = live(case, tmp_path / "none", None)
    calls = len(none.made)
    for number, point in enumerate(chosen.sample(range(1, calls + 1), POINTS)):
        strike = Strike.FREEZE if number % 2 == 0 else chosen.choice(list(Strike))
        live(case, tmp_path / str(point), point, strike=strike, gives_up=chosen.random() < 0.5)
    point, successor = chosen.choice(none.changing), chosen.choice(none.changing)
    live(case, tmp_path / "both", point, gives_up=chosen.random() < 0.5, successor=successor)


@pytest.mark.parametrize("kind", [StruckShards, StruckItems])
@pytest.mark.parametrize(("one", "other"), [(PLAIN, TWO), (OLD, FIXED), (TWO, PLAIN), (CHECKED_OLD, OLD)])
def test_concurrent_dag_versions_deliver_everything_once(
    kind: type[StruckSource], one: Dag, other: Dag, tmp_path: Path
) -> None:
    life = kind(Case("two versions", one, other), tmp_path, Calls(), gives_up=False)
    life.work_together(one, other)
    assert set(life.rows(MAIN)) | set(life.rows(DEAD_LETTER)) == set(life.sent)
    assert set(life.rows(MAIN).values()) == {1}


@pytest.mark.parametrize("rounds", [0, 1], ids=["during takeover", "during shard selection"])
def test_lease_lost_within_a_round_does_not_end_it(tmp_path: Path, rounds: int) -> None:
    history = History(tmp_path)
    history.sync()
    worker = history.start()
    for _ in range(rounds):
        history.round(worker)
    history.send(4)
    coordinator = worker.job._coordinator
    token_of = coordinator.leases.fencing_token

    def lost_in_this_moment(key: str) -> int:
        history.notice(worker)
        coordinator.leases.recover()
        return token_of(key)

    with patch.object(coordinator.leases, "fencing_token", lost_in_this_moment):
        history.round(worker)
    history.settle()
    assert history.delivered == Counter(history.sent)


def test_store_outage_at_a_start_counts_as_no_failure(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.sync()
    worker = history.start()
    history.send(4)
    history.split(0)
    for _ in range(9):
        if len(history.partitions) < 4:  # until the parent is delivered, and its children are created
            history.round(worker)
    store, failed = worker.store, []

    def get(*details: Any) -> Any:
        if not failed:
            failed.append(details)
            raise StoreUnavailableError("connection reset")
        return getter(*details)

    getter = store.get
    with patch.object(store, "get", get), pytest.raises(StoreUnavailableError):
        history.round(worker)
    assert [partition.attempts for partition in history.partitions.values()] == [0] * 4
    history.settle()
    assert history.delivered == Counter(history.sent)
