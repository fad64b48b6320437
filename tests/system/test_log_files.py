"""A custom source without an end: log files grow, rotate and appear while jobs are killed."""

from __future__ import annotations

import os
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.sources.kinds import ReadsSettings
from tests.airflow.conftest import REPOSITORY
from tests.support.item_job import ItemPipeline
from tests.support.spark_job import APPLICATION, CRASHING

MODULES = f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'dags'}"


def write(path: Path, first: int, end: int) -> list[str]:
    lines = [f"{number}" for number in range(first, end)]
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)
    return lines


@pytest.mark.usefixtures("java")
def test_lines_are_delivered_once_except_from_a_truncated_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY / "dags"))
    import log_file_source

    logs = tmp_path / "logs"
    logs.mkdir()
    reads = ReadsSettings(kind="log_files", settings={"folder": str(logs)}, implementation="log_file_source:KIND")
    pipeline = ItemPipeline(tmp_path, reads, lambda coordinator: log_file_source.supplier(str(logs)))
    run = partial(pipeline.run, max_batch_bytes=400, round_duration=1)
    written = [*write(logs / "a.log", 0, 200), *write(logs / "b.log", 200, 300)]
    pipeline.find()

    run(CRASHING, env={"CRASH_AT": "recorded", "PYTHONPATH": MODULES})
    (logs / "a.log").rename(logs / "a.log.1")  # it rotates, and the writer still has it open
    written += write(logs / "a.log.1", 300, 320)
    written += write(logs / "a.log", 320, 400)
    pipeline.find()
    assert run(APPLICATION, env={"PYTHONPATH": MODULES}).wait() == 0, pipeline.jobs[-1].output
    assert Counter(map(bytes.decode, pipeline.delivered("data"))) == Counter(written)

    (logs / "b.log").write_text("")
    written += write(logs / "a.log", 400, 420)
    assert run(APPLICATION, env={"PYTHONPATH": MODULES}).wait() == 1
    assert Counter(map(bytes.decode, pipeline.delivered("data"))) == Counter(written), pipeline.jobs[-1].output
    parked = list(pipeline.coordinator().view.partitions(PartitionStatus.CLOSED))
    assert [("was truncated to 0 bytes" in str(each.last_error), each.is_parked) for each in parked] == [(True, True)]
