"""How far a run searches: the short form of each test, or with `--deep` the long one.

- A test that has both forms is marked `deep`, as is each property of hypothesis: `make test-deep` runs the long form.
- Of the cases of a function that is marked `share(0.3)`, a run without `--deep` takes three of ten, at least one.
- Of the tests in the folders of `TURNS`, which start whole systems, a run without `--deep` takes a share too, others
  each day. One that is marked `share(1)` is in every run. So is everything, if files or `-k` say what to run.
- A test without a short form is marked `only_deep`. Without `--deep` a run leaves these out but for one, which the seed
  of the run chooses among those that took `DAILY_SECONDS` at most when `make test-deep` ran last. Tests that need what
  only `make test-deep` fetches are marked `only_deep(daily=False)`.

`--part` takes one of the parts of `make test-deep`. A part can be resumed: what passed at this commit is not run again.
With `--record-durations` it records how long its `only_deep` tests took.
"""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from tests.support.seed import seeded, share_of

REPOSITORY = Path(__file__).resolve().parents[2]
FACTOR = 20
"""How many times as many examples of a property are tried with `--deep`."""
DEEP_FOLDER = REPOSITORY / "tests" / "deep"
"""The folder of searches that have no short form and take minutes each."""
RECORD = REPOSITORY / "tests" / "deep_durations.json"
"""How many seconds each test took that is `only_deep`."""
PROGRESS = REPOSITORY / ".deep"
"""The folder that says what passed, by part."""
DAILY_SECONDS = 30.0
PARTS: dict[str, tuple[str, ...]] = {
    "benchmarks": ("tests/benchmarks",),
    "airflow": ("tests/system/airflow", "tests/airflow", "tests/cli"),
    "jobs": ("tests/system",),
    "tables": ("tests/spark/sinks", "tests/integration"),
    "strikes": ("tests",),
}
"""The folders of each part; a test belongs to the first part that fits."""

TURNS = {
    "tests/system/airflow/browser": 0.4,
    "tests/system/airflow": 0.4,
    "tests/system/cluster": 0.3,
    "tests/system": 0.4,
}
"""The folders whose tests take turns, and the share that a run takes; a test is in the first folder that fits."""

_deep: bool | None = None
Form = TypeVar("Form")


def at_depth(*, short: Form, deep: Form) -> Form:
    """Return the short form, or the deep one with `--deep`.

    :raises RuntimeError: if it is called while a `conftest.py` is imported, which may be before options are read.
    """
    if _deep is None:
        raise RuntimeError("the depth is not known yet: call at_depth in a fixture or a test module")
    return deep if _deep else short


def examples(number: int) -> int:
    """Return how many examples of a property this run tries.

    :param number: without `--deep`.
    """
    return at_depth(short=number, deep=FACTOR * number)


def each_or_every(step: int, number: int, *names: object) -> range:
    """Return the numbers from 1 to `number`: each with `--deep`, otherwise every `step`th, from one that the seed sets.

    :param names: see `seeded`.
    """
    if _deep:
        return range(1, number + 1)
    return range(1 + seeded("every", *names).randrange(min(step, number)), number + 1, step)


def part_of(nodeid: str) -> str:
    """Return the part of `make test-deep` that a test belongs to."""
    return next(part for part, folders in PARTS.items() if nodeid.startswith(folders))


def chosen_today(nodeids: Sequence[str], seconds: dict[str, float]) -> str | None:
    """Return the `only_deep` test that a run without `--deep` takes, if there is one.

    :param nodeids: the collected ones.
    :param seconds: how long each of them took, as far as that is recorded.
    """
    short = sorted(nodeid for nodeid in nodeids if seconds.get(nodeid, DAILY_SECONDS + 1) <= DAILY_SECONDS)
    return seeded("only_deep").choice(short) if short else None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--deep` and `--part`."""
    parser.addoption("--deep", action="store_true", help="run the long form of each search")
    parser.addoption("--part", choices=list(PARTS), help="with --deep: run one part, and resume it at the same commit")


def pytest_configure(config: pytest.Config) -> None:
    """Set the depth before the first test is imported."""
    global _deep
    _deep = bool(config.getoption("deep"))
    # No time limits: how long an example takes depends on what else the machine has to do.
    settings.register_profile(
        "coordination", max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("coordination")
    if (part := config.getoption("part")) and not hasattr(config, "workerinput"):
        record = RECORD if config.getoption("record_durations") else None
        config.pluginmanager.register(Progress(part, PROGRESS, _commit(), record), "deep-progress")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the folder of deep searches, unless `--deep` is set."""
    return True if collection_path == DEEP_FOLDER and not _deep else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the properties, whose examples are more with `--deep`."""
    if _deep and is_hypothesis_test(getattr(item, "obj", None)):
        item.add_marker("deep")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what this run does not take."""
    if not _deep:
        alone = {item.nodeid: marker for item in items if (marker := item.get_closest_marker("only_deep"))}
        daily = [nodeid for nodeid, marker in alone.items() if marker.kwargs.get("daily", True)]
        left_out = alone.keys() - {chosen_today(daily, _recorded(RECORD))}
        left_out |= _beyond_shares(items)
        if not (config.option.keyword or any(".py" in argument for argument in config.args)):
            left_out |= _beyond_turns([item for item in items if item.nodeid not in left_out])
    elif part := config.getoption("part"):
        passed = Progress(part, PROGRESS, _commit()).passed
        deep = ("deep", "only_deep", "share")
        left_out = {
            item.nodeid
            for item in items
            if part_of(item.nodeid) != part
            or item.nodeid in passed
            or not (any(map(item.get_closest_marker, deep)) or _folder_of_turns(item.nodeid))
        }
    else:
        return
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
    items[:] = [item for item in items if item.nodeid not in left_out]


def _beyond_shares(items: Sequence[pytest.Item]) -> set[str]:
    """Return the tests that a run leaves out by their marker `share`; it takes at least one of each function."""
    cases: defaultdict[tuple[str, float], list[str]] = defaultdict(list)
    for item in items:
        if share := item.get_closest_marker("share"):
            cases[item.nodeid.partition("[")[0], share.args[0]].append(item.nodeid)
    return {
        nodeid
        for (function, share), nodeids in cases.items()
        for nodeid in set(nodeids).difference(share_of(nodeids, share, function))
    }


def _folder_of_turns(nodeid: str) -> str | None:
    return next((folder for folder in TURNS if nodeid.startswith(f"{folder}/")), None)


def _beyond_turns(items: Sequence[pytest.Item]) -> set[str]:
    """Return the tests of the folders of `TURNS` that a run leaves out."""
    taking_turns: defaultdict[str, list[str]] = defaultdict(list)
    for item in items:
        share = item.get_closest_marker("share")
        folder = _folder_of_turns(item.nodeid)
        if folder is not None and (share is None or share.args[0] < 1) and not item.get_closest_marker("only_deep"):
            taking_turns[folder].append(item.nodeid)
    return {
        nodeid
        for folder, nodeids in taking_turns.items()
        for nodeid in set(nodeids).difference(share_of(nodeids, TURNS[folder], folder))
    }


class Progress:
    """What passed of a part at the commit that is checked out; nothing is remembered of changed files.

    :param part: see `PARTS`.
    :param folder: where the progress is kept.
    :param commit: the commit; None if files differ from it.
    :param record: where to record the seconds of `only_deep` tests; None for no record.
    """

    def __init__(self, part: str, folder: Path, commit: str | None, record: Path | None = None) -> None:
        self._part = part
        self._file = folder / f"{part}.json"
        self._commit = commit
        kept = json.loads(self._file.read_text()) if self._file.exists() else {}
        self.passed: dict[str, float] = kept.get("passed", {}) if self._commit == kept.get("commit") else {}
        self._failed: dict[str, float] = {}
        self._seconds: dict[str, float] = {}
        self._only_deep: dict[str, float] = {}
        self._record = record

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a phase of a test, and keep the test once it has passed."""
        seconds = self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration
        if report.failed:
            self.passed.pop(report.nodeid, None)
            self._failed[report.nodeid] = seconds
        elif report.when == "teardown" and report.nodeid not in self._failed:
            self.passed[report.nodeid] = round(seconds, 1)
            self._keep()
            if "only_deep" in report.keywords:
                self._only_deep[report.nodeid] = round(seconds, 1)

    def pytest_sessionfinish(self) -> None:
        """Record the tests that passed, beside those of other parts."""
        if self._record is not None:
            durations = {**_recorded(self._record), **self._only_deep}
            self._record.write_text(json.dumps(dict(sorted(durations.items())), indent=2) + "\n")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print one line: how many tests were tried, how many held, and how long they took."""
        tried = len(self.passed) + len(self._failed)
        seconds = sum(self.passed.values()) + sum(self._failed.values())
        terminalreporter.write_line(
            f"deep {self._part}: {tried} tried, {len(self.passed)} held, {seconds:.0f} s of tests"
        )

    def _keep(self) -> None:
        if self._commit is None:
            return
        self._file.parent.mkdir(exist_ok=True)
        partial = self._file.with_suffix(".partial")
        partial.write_text(json.dumps({"commit": self._commit, "passed": self.passed}, indent=1))
        partial.replace(self._file)


def _commit() -> str | None:
    """Return the commit that is checked out, unless files differ from it."""
    command = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    described = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False).stdout.strip()
    return None if not described or described.endswith("-dirty") else described


def _recorded(path: Path) -> dict[str, float]:
    seconds: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}
    return seconds
