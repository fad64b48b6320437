"""A run takes short forms, deep forms, parts, and what has not passed yet."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deep.test_mutations import MUTATIONS
from tests.support.depth import DAILY_SECONDS, PARTS, REPOSITORY, Progress, chosen_today, part_of


@pytest.mark.parametrize(
    ("nodeid", "part"),
    [
        ("tests/benchmarks/test_delivery.py::test_it", "benchmarks"),
        ("tests/system/airflow/test_backfills.py::test_it", "airflow"),
        ("tests/system/test_soak.py::test_it", "jobs"),
        ("tests/spark/sinks/test_histories.py::test_it", "tables"),
        ("tests/deep/test_struck_jobs.py::test_it", "strikes"),
    ],
)
def test_test_belongs_to_the_first_part_that_fits(nodeid: str, part: str) -> None:
    assert part_of(nodeid) == part
    assert part in PARTS


def test_daily_test_is_a_short_one() -> None:
    seconds = {"long": DAILY_SECONDS + 1, "short": DAILY_SECONDS - 1}
    assert chosen_today(["long", "short", "unknown"], seconds) == "short"
    assert chosen_today(["long", "unknown"], seconds) is None


def a_report(nodeid: str, when: str, outcome: str = "passed") -> pytest.TestReport:
    return pytest.TestReport(nodeid, (nodeid, 1, "it"), {}, outcome, None, when, duration=1.0)  # type: ignore[arg-type]


def report_all(progress: Progress, nodeid: str, call: str = "passed") -> None:
    for when, outcome in (("setup", "passed"), ("call", call), ("teardown", "passed")):
        progress.pytest_runtest_logreport(a_report(nodeid, when, outcome))


def test_part_resumes_what_did_not_pass_at_this_commit(tmp_path: Path) -> None:
    first = Progress("jobs", tmp_path, commit="abc")
    report_all(first, "passes")
    report_all(first, "fails", call="failed")
    assert Progress("jobs", tmp_path, commit="abc").passed == {"passes": 3.0}
    assert Progress("jobs", tmp_path, commit="def").passed == {}
    assert Progress("tables", tmp_path, commit="abc").passed == {}


def test_changed_checkout_keeps_no_progress(tmp_path: Path) -> None:
    report_all(Progress("jobs", tmp_path, commit=None), "passes")
    assert not list(tmp_path.iterdir())


def test_resumed_test_that_fails_has_not_passed(tmp_path: Path) -> None:
    (tmp_path / "jobs.json").write_text(json.dumps({"commit": "abc", "passed": {"flaky": 1.0}}))
    progress = Progress("jobs", tmp_path, commit="abc")
    report_all(progress, "flaky", call="failed")
    assert progress.passed == {}


def test_part_records_the_tests_without_a_short_form(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    record.write_text(json.dumps({"of another part": 2.0}))
    progress = Progress("jobs", tmp_path, None, record)
    for when in ("setup", "call", "teardown"):
        for nodeid, marker in (("deep alone", "only_deep"), ("with a short form", "deep")):
            report = a_report(nodeid, when)
            report.keywords[marker] = 1
            progress.pytest_runtest_logreport(report)
    progress.pytest_sessionfinish()
    assert json.loads(record.read_text()) == {"deep alone": 3.0, "of another part": 2.0}


@pytest.mark.parametrize(
    ("part", "file"),
    [("strikes", "tests/coordination/test_lease_safety.py"), ("benchmarks", "tests/benchmarks/test_failover.py")],
)
def test_part_takes_its_deep_tests(part: str, file: str) -> None:
    command = [sys.executable, "-m", "pytest", "--deep", f"--part={part}", "--collect-only", "-q", file]
    output = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    assert f"{file}::" in output


CASES = """
import pytest

pytestmark = pytest.mark.share(0.3)

@pytest.mark.parametrize("case", range(10))
def test_many(case): pass

@pytest.mark.parametrize("case", range(2))
def test_few(case): pass

def test_single(): pass

@pytest.mark.only_deep
def test_deep(): pass

@pytest.mark.only_deep(daily=False)
def test_deep_with_more_servers(): pass
"""
CONFTEST = f"""
import sys
from pathlib import Path

sys.path.append({str(REPOSITORY)!r})
from tests.support import depth

depth.RECORD = Path(__file__).with_name("record.json")
pytest_plugins = ["tests.support.seed", "tests.support.depth"]
"""


@pytest.mark.parametrize(("options", "passed"), [([], 3 + 1 + 1 + 1), (["--deep"], 10 + 2 + 1 + 2)])
def test_run_takes_its_share_and_a_daily_test(tmp_path: Path, options: list[str], passed: int) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    record = {f"test_cases.py::{name}": 1.0 for name in ("test_deep", "test_deep_with_more_servers")}
    (tmp_path / "record.json").write_text(json.dumps(record))
    (tmp_path / "test_cases.py").write_text(CASES)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), *options]
    output = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=True).stdout
    assert f"{passed} passed" in output


TURNS = """
import pytest

@pytest.mark.parametrize("case", range(9))
def test_case_of_many(case): pass

@pytest.mark.share(1)
def test_case_of_each_run(): pass
"""


@pytest.mark.parametrize(("options", "passed"), [([], 3 + 1), (["--deep"], 9 + 1)])
def test_run_takes_turns_in_folders_of_whole_systems(tmp_path: Path, options: list[str], passed: int) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    folder = tmp_path / "tests" / "system" / "cluster"
    folder.mkdir(parents=True)
    (folder / "test_turns.py").write_text(TURNS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), *options]
    output = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=True).stdout
    assert f"{passed} passed" in output


def test_mutations_match_the_code() -> None:
    package = REPOSITORY / "airflow_provider_coordination"
    found = {name: (package / each.file).read_text().count(each.fix) for name, each in MUTATIONS.items()}
    assert {name for name, times in found.items() if times != 1} == set()
    for each in MUTATIONS.values():
        if each.file.endswith(".py"):
            compile((package / each.file).read_text().replace(each.fix, each.without), each.file, "exec")
