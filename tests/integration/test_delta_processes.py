"""Two processes commit to one Delta table at the same time, one of which may be a previous owner."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.spark.sinks import owed
from tests.support.delta_tables import batches_in
from tests.support.sinks import SINKS, BatchRows, SinkTarget, an_attempt
from tests.support.waiting import PATIENCE_SECONDS

ROUNDS = 15


def deliver_all(folder: Path, token: int, ready: object) -> None:
    """Deliver batches that the other process delivers too, each under its own lease, and some of its own."""
    target = SinkTarget(SINKS["delta"], folder)
    sink = target.sink()
    ready.wait(PATIENCE_SECONDS)  # type: ignore[attr-defined]
    for number in range(ROUNDS):
        shared, mine = an_attempt(f"shared-{number}", token), an_attempt(f"own-{token}-{number}", token)
        values = {shared.batch_id: [number, token], mine.batch_id: [number]}
        for attempts in ([shared, mine], [mine]):  # where one batch is refused, the others are delivered without it
            try:
                left = owed(sink, attempts)
                sink.prepare(left, BatchRows(values))
                sink.commit(left)
                sink.discard(left)
                break
            except CoordinationError:
                continue


def test_concurrent_processes_commit_each_batch_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(2)
    folder = tmp_path / "lake"
    processes = [context.Process(target=deliver_all, args=(folder, token, ready)) for token in (1, 2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(PATIENCE_SECONDS)
    assert [process.exitcode for process in processes] == [0, 0]
    found = batches_in(folder)
    assert {batch_id for batch_id in found if batch_id.startswith("own")} == {
        f"own-{token}-{number}" for token in (1, 2) for number in range(ROUNDS)
    }
    for number in range(ROUNDS):
        assert found[f"own-1-{number}"] == found[f"own-2-{number}"] == [number]
        assert found[f"shared-{number}"] in (sorted([number, 1]), sorted([number, 2])), "one delivery, whole"
