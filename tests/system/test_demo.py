"""The demo, run like a user does, with a tenth of the data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from demo.events import FLIGHTS
from demo.stream_story import DAG
from tests.support.depth import at_depth

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.usefixtures("java", "kinesis")
@pytest.mark.deep
@pytest.mark.share(1)
@pytest.mark.parametrize(
    "options",
    at_depth(short=("--sink parquet",), deep=("--sink parquet", "--sink delta", "--sink iceberg", "--cluster")),
)
def test_demo_ingests_each_event_once_across_split_and_crash(tmp_path: Path, options: str) -> None:
    demo = subprocess.run(
        [sys.executable, "-m", "demo.run", "--folder", str(tmp_path), *options.split()],
        cwd=REPOSITORY,
        env=os.environ | {"FAST": "1"},
        capture_output=True,
        text=True,
    )

    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert DAG == "kinesis_ingestion"
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["faults"] == []
    assert report["events_sent"] == report["dataset"]["events"] == report["dataset"]["distinct"] == FLIGHTS // 10
    assert {report["dataset"][name] for name in ("duplicates", "lost", "mismatched", "unknown")} == {0}
    assert report["dag_state"] == "success"
    status = {partition["shard_id"]: partition["status"] for partition in report["partitions"]}
    assert len(status) == 6 and status[report["split_shard"]] == "COMPLETED"
    assert Counter(p["parents"] == [report["split_shard"]] for p in report["partitions"]) == {True: 2, False: 4}
    assert report["killed"]["partitions"] and report["killed"]["batches"]
    assert sorted(report["tries"].values()) == [1, 2]
    for event in ("SPLIT", "KILLED", "TAKEN OVER", "read back by"):
        assert event in demo.stdout
    assert still_running(tmp_path) == []
    assert (report["killed_worker"] is not None) == (options == "--cluster")


@pytest.mark.usefixtures("java", "dynamodb")
@pytest.mark.only_deep
@pytest.mark.parametrize("sink", ["delta", "iceberg"])
def test_demo_follows_a_table_with_its_deletes(tmp_path: Path, sink: str) -> None:
    demo = subprocess.run(
        [sys.executable, "-m", "demo.run", "--folder", str(tmp_path), "--source", "dynamodb", "--sink", sink],
        cwd=REPOSITORY,
        env=os.environ | {"FAST": "1"},
        capture_output=True,
        text=True,
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["faults"] == [] and report["deletes"] > 200 and report["items_put"] == report["changes"] == 1_000
    assert report["table"]["items"] == report["table"]["rows"] > 800
    assert {report["table"][name] for name in ("missing", "deleted", "differing", "doubled")} == {0}
    assert report["tries"] == {"0": 2} and report["crash"]["batches"]
    assert still_running(tmp_path) == []


def still_running(folder: Path) -> list[list[str]]:
    """Return the commands of processes that have to do with a folder."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            command, home = process.cmdline(), process.environ().get("AIRFLOW_HOME", "")
            if process.pid != os.getpid() and (any(str(folder) in part for part in command) or str(folder) in home):
                found.append(command)
    return found
