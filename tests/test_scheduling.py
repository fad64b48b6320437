"""The order in which test files start, and the record of their durations."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.scheduling import (
    ALL_CORE_SECONDS,
    FILE_CORE_SECONDS,
    NEW_SECONDS,
    REPOSITORY,
    Recorder,
    group_of,
    in_order,
    recorded,
)

SOAK, QUICK, NEW = "tests/system/test_soak.py", "tests/integration/test_quick.py", "tests/integration/test_new.py"
PAGES, JOBS = "tests/system/airflow/browser/test_pages.py", "tests/system/airflow/test_jobs.py"


def a_report(file: str, seconds: float, core_seconds: float = 0.0) -> pytest.TestReport:
    report = pytest.TestReport(f"{file}::test_it", (file, 1, "it"), {}, "passed", None, "call", duration=seconds)
    report.core_seconds = core_seconds  # type: ignore[attr-defined]
    return report


@pytest.mark.parametrize(
    ("file", "group"),
    [
        (SOAK, SOAK),
        (JOBS, "tests/system/airflow"),
        (PAGES, "tests/system/airflow"),
        ("tests/spark/sinks/test_delta.py", "tests/spark/sinks/test_delta.py"),
        ("tests/test_docs.py", "tests/test_docs.py"),
    ],
)
def test_file_is_a_group_unless_its_folder_is_shared(file: str, group: str) -> None:
    assert group_of(f"{file}::test_it") == group_of(file) == group


def test_longest_group_starts_first() -> None:
    assert in_order([QUICK, SOAK], {QUICK: 1.0, SOAK: 100.0}) == [SOAK, QUICK]


def test_shared_folder_is_as_long_as_its_files_together() -> None:
    assert in_order([QUICK, PAGES, SOAK, JOBS], {QUICK: 1.0, PAGES: 60.0, SOAK: 100.0, JOBS: 70.0}) == [
        PAGES, JOBS, SOAK, QUICK
    ]  # fmt: skip


def test_file_without_a_record_starts_between_long_and_short_ones() -> None:
    assert in_order([QUICK, NEW, SOAK], {QUICK: NEW_SECONDS / 2, SOAK: NEW_SECONDS * 2}) == [SOAK, NEW, QUICK]


RUN = ["--dist", "loadgroup", "--no-loadscope-reorder", "-v", "-p", "no:cacheprovider"]


def run(tmp_path: Path, record: dict[str, float], *options: str) -> str:
    """Run the tests of a folder by this schedule, and return pytest's output."""
    durations = tmp_path / "durations.json"
    durations.write_text(json.dumps({file: {"seconds": took, "core_seconds": 0.0} for file, took in record.items()}))
    (tmp_path / "conftest.py").write_text(
        f"import sys; sys.path.append({str(REPOSITORY)!r})\n"
        "from pathlib import Path; import tests.support.scheduling as scheduling\n"
        f"scheduling.DURATIONS = Path({str(durations)!r})\n"
        'pytest_plugins = ["tests.support.scheduling"]\n'
    )
    command = [sys.executable, "-m", "pytest", *RUN, *options, "--rootdir", str(tmp_path), str(tmp_path)]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout


def test_processes_start_files_in_this_order(tmp_path: Path) -> None:
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / name).write_text("def test_it(): pass\n")
    output = run(tmp_path, {"test_a.py": 1.0, "test_b.py": 100.0}, "-n", "1")
    passed = [line for line in output.splitlines() if "PASSED" in line]
    assert ["test_a" in line for line in passed] == [False, True]


def test_process_with_one_long_test_holds_back_no_long_file(tmp_path: Path) -> None:
    (tmp_path / "test_long.py").write_text("import time\ndef test_it(): time.sleep(2)\n")
    (tmp_path / "test_next.py").write_text("def test_one(): pass\ndef test_two(): pass\ndef test_three(): pass\n")
    for name in ("test_middle.py", "test_short.py", "test_shortest.py"):
        (tmp_path / name).write_text("def test_it(): pass\n")
    record = {"test_long.py": 100, "test_next.py": 90, "test_middle.py": 80, "test_short.py": 2, "test_shortest.py": 1}
    output = run(tmp_path, record, "-n", "2")
    process_of = {
        line.split("test_")[1].split(".")[0]: line.split("]")[0] for line in output.splitlines() if "PASSED" in line
    }
    assert process_of["middle"] == process_of["next"] != process_of["long"] == process_of["shortest"]


def test_run_that_passed_is_recorded_and_missing_files_leave(tmp_path: Path) -> None:
    record = tmp_path / "durations.json"
    known = {"seconds": 5.0, "core_seconds": 5.0}
    record.write_text(json.dumps({"tests/test_gone.py": known, "tests/test_depth.py": known, QUICK: known}))
    recorder = Recorder(record)
    for seconds in (0.25, 1.5):
        recorder.pytest_runtest_logreport(a_report(SOAK, seconds, 2 * seconds))
    recorder.pytest_runtest_logreport(a_report(QUICK, 0.5, 0.1))
    recorder.pytest_sessionfinish(exitstatus=0)
    assert recorded(record) == {
        QUICK: {"seconds": 0.5, "core_seconds": 0.1},
        SOAK: {"seconds": 1.8, "core_seconds": 3.5},
        "tests/test_depth.py": known,
    }


def test_run_that_failed_is_not_recorded(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "durations.json")
    recorder.pytest_runtest_logreport(a_report(SOAK, 1.0))
    recorder.pytest_sessionfinish(exitstatus=1)
    assert not (tmp_path / "durations.json").exists()


def test_child_processes_count_for_their_test(tmp_path: Path) -> None:
    work = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'sum(range(10_000_000))'], check=True)"
    (tmp_path / "test_busy.py").write_text(f"def test_it():\n    {work}\n")
    (tmp_path / "test_idle.py").write_text("def test_it(): pass\n")
    run(tmp_path, {}, "-n", "1", "--record-durations")
    costs = recorded(tmp_path / "durations.json")
    assert costs["test_busy.py"]["core_seconds"] > costs["test_idle.py"]["core_seconds"]


def test_collection_counts_for_no_file(tmp_path: Path) -> None:
    work = "sum(range(10_000_000))"
    (tmp_path / "test_first.py").write_text(f"{work}\ndef test_it(): pass\n")
    (tmp_path / "test_second.py").write_text(f"def test_it(): {work}\n")
    run(tmp_path, {}, "-n", "1", "--record-durations")
    costs = recorded(tmp_path / "durations.json")
    assert costs["test_first.py"]["core_seconds"] < costs["test_second.py"]["core_seconds"]


def test_no_file_exceeds_its_core_seconds() -> None:
    costs = {file: cost["core_seconds"] for file, cost in recorded().items()}
    assert {file: cost for file, cost in costs.items() if cost > FILE_CORE_SECONDS} == {}
    assert sum(costs.values()) <= ALL_CORE_SECONDS
