"""The order in which test files start, and the record of their durations."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.scheduling import NEW_SECONDS, REPOSITORY, Recorder, group_of, in_order

SOAK, QUICK, NEW = "tests/system/test_soak.py", "tests/integration/test_quick.py", "tests/integration/test_new.py"
PAGES, JOBS = "tests/system/airflow/browser/test_pages.py", "tests/system/airflow/test_jobs.py"


def a_report(file: str, seconds: float) -> pytest.TestReport:
    return pytest.TestReport(f"{file}::test_it", (file, 1, "it"), {}, "passed", None, "call", duration=seconds)


@pytest.mark.parametrize(
    ("file", "group"),
    [
        (SOAK, SOAK),
        (JOBS, "tests/system/airflow"),
        (PAGES, "tests/system/airflow"),
        ("tests/test_docs.py", "tests/test_docs.py"),
    ],
)
def test_a_file_is_a_group_and_so_is_a_folder_of_an_area(file: str, group: str) -> None:
    assert group_of(file) == group


def test_what_takes_longest_is_begun_first() -> None:
    assert in_order([QUICK, SOAK], {QUICK: 1.0, SOAK: 100.0}) == [SOAK, QUICK]


def test_a_folder_takes_as_long_as_all_its_files_and_stays_in_order() -> None:
    assert in_order([QUICK, PAGES, SOAK, JOBS], {QUICK: 1.0, PAGES: 60.0, SOAK: 100.0, JOBS: 70.0}) == [
        PAGES, JOBS, SOAK, QUICK
    ]  # fmt: skip


def test_a_file_without_a_record_is_begun_before_short_ones_and_after_long_ones() -> None:
    assert in_order([QUICK, NEW, SOAK], {QUICK: NEW_SECONDS / 2, SOAK: NEW_SECONDS * 2}) == [SOAK, NEW, QUICK]


def test_the_processes_that_run_tests_start_in_this_order(tmp_path: Path) -> None:
    record = tmp_path / "durations.json"
    record.write_text(json.dumps({"test_a.py": 1.0, "test_b.py": 100.0}))
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / name).write_text("def test_it(): pass\n")
    (tmp_path / "conftest.py").write_text(
        f"import sys; sys.path.append({str(REPOSITORY)!r})\n"
        "from pathlib import Path; import tests.support.scheduling as scheduling\n"
        f"scheduling.DURATIONS = Path({str(record)!r})\n"
        'pytest_plugins = ["tests.support.scheduling"]\n'
    )
    options = ["-n", "1", "--dist", "loadgroup", "--no-loadscope-reorder", "-v", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, "--rootdir", str(tmp_path), str(tmp_path)]
    output = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert [
        name for line in output.splitlines() if "PASSED" in line for name in ("test_a", "test_b") if name in line
    ] == [
        "test_b",
        "test_a",
    ]


def test_a_run_that_passed_is_recorded_and_what_is_gone_is_forgotten(tmp_path: Path) -> None:
    record = tmp_path / "durations.json"
    record.write_text(json.dumps({"tests/test_gone.py": 5.0}))
    recorder = Recorder(record)
    for seconds in (0.25, 1.5):
        recorder.pytest_runtest_logreport(a_report(SOAK, seconds))
    recorder.pytest_runtest_logreport(a_report(QUICK, 0.5))
    recorder.pytest_sessionfinish(exitstatus=0)
    assert json.loads(record.read_text()) == {QUICK: 0.5, SOAK: 1.8}


def test_a_run_that_failed_leaves_the_record_as_it_is(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "durations.json")
    recorder.pytest_runtest_logreport(a_report(SOAK, 1.0))
    recorder.pytest_sessionfinish(exitstatus=1)
    assert not (tmp_path / "durations.json").exists()
