"""Eight workers that share eight thousand partitions: rounds until balance, and the number of moves."""

from __future__ import annotations

from collections import Counter

import pytest

from airflow_provider_coordination.coordination.balance import BALANCE_BY, STEP, Lease, Member, Rules, plan
from airflow_provider_coordination.coordination.metrics import CoordinationMetric
from tests.coordination.fleet import Fleet
from tests.coordination.jobs import LOOK, Job

WORKERS, PARTITIONS = 8, 8000
NAMES = [f"worker-{n}" for n in range(WORKERS)]


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    fleet.owner("sync").create_partitions({f"shard-{n:03}": {} for n in range(400)})
    return fleet


@pytest.mark.parametrize("balance_by", BALANCE_BY)
@pytest.mark.parametrize("existing", [1, 7])
def test_new_workers_reach_their_share_moving_each_partition_once(balance_by: str, existing: int) -> None:
    rules = Rules(balance_by=balance_by, max_leases_to_steal=None)
    leases = {
        key: Lease(key=key, owner=NAMES[n % existing], throughput=1000.0 + n % 7)
        for n, key in enumerate(f"shard-{n:05}" for n in range(PARTITIONS))
    }
    members = [Member(owner=name) for name in NAMES]
    moved: Counter[str] = Counter()
    rounds = 0
    while True:
        asked = [move for me in NAMES for move in plan(me, list(leases.values()), members, [], rules).requests]
        if not asked:
            break
        rounds += 1
        for move in asked:
            assert leases[move.key].owner == move.giver
            leases[move.key] = Lease(key=move.key, owner=move.taker, throughput=leases[move.key].throughput)
            moved[move.key] += 1
    held = Counter(lease.owner for lease in leases.values())
    assert max(held.values()) - min(held.values()) <= (1 if balance_by == "count" else PARTITIONS // WORKERS // 5)
    assert set(moved.values()) == {1}
    assert rounds <= STEP + 1


def test_hundreds_of_handovers_keep_one_owner_and_lose_none(fleet: Fleet) -> None:
    jobs = [Job(fleet, "worker-0")]
    assert len(jobs[0].round()) == 400
    jobs += [Job(fleet, f"worker-{n}") for n in range(1, WORKERS)]
    for _ in range(2 * STEP + 4):
        for job in jobs:
            job.renew()
            job.round()
            owned = Counter(key for each in jobs for key in each.held if each.coordinator.leases.owns(key))
            assert set(owned.values()) == {1}
        fleet.clock.advance(LOOK)
    assert [len(job.held) for job in jobs] == [400 // WORKERS] * WORKERS
    assert not any(job.count(CoordinationMetric.HANDOVERS_FORCED) for job in jobs)
