"""Which tests one process runs, in which order the processes take them, and what each file costs.

A file is a group: one process runs it. The folders of `SHARED` are one group each, since their tests share what takes
long to start. The groups that take longest start first, by `tests/durations.json`, which `make durations` writes. The
record holds the core-seconds of each file too: a unit test compares them with `FILE_CORE_SECONDS` and
`ALL_CORE_SECONDS`, so that `make test` stays short.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling
    from xdist.workermanage import WorkerController

REPOSITORY = Path(__file__).resolve().parents[2]
DURATIONS = REPOSITORY / "tests" / "durations.json"
"""The seconds and core-seconds of each file when it was recorded."""
FILE_CORE_SECONDS = 60.0
"""What a file may cost: the time of all cores, child processes included."""
ALL_CORE_SECONDS = 1_200.0
"""What all integration and system tests may cost together; their servers and the collection come on top."""
NEW_SECONDS = 30.0
"""The duration that a file without a record is taken to have."""
LONG_SECONDS = 20.0
"""A process that still has tests of this duration gets a short group as its next one."""
SHARED = ("tests/airflow/api", "tests/system/airflow", "tests/system/cluster")
"""Folders whose tests one process runs."""


def group_of(nodeid: str) -> str:
    """Return the group of a test or file: a folder of `SHARED`, otherwise the file.

    :param nodeid: below the repository, with slashes.
    """
    file = nodeid.split("::", 1)[0]
    return next((folder for folder in SHARED if file.startswith(f"{folder}/")), file)


def in_order(files: list[str], seconds: dict[str, float]) -> list[str]:
    """Return test files in the order in which they start: the longest groups first, the files of a group as they were.

    :param files: each once.
    :param seconds: how long files took, as far as they are recorded.
    """
    total: defaultdict[str, float] = defaultdict(float)
    for file in files:
        total[group_of(file)] += seconds.get(file, NEW_SECONDS)
    return sorted(files, key=lambda file: (-total[group_of(file)], group_of(file)))


def recorded(path: Path | None = None) -> dict[str, dict[str, float]]:
    """Return `seconds` and `core_seconds` of each recorded file."""
    path = path or DURATIONS  # which a test may replace
    record: dict[str, dict[str, float]] = json.loads(path.read_text()) if path.exists() else {}
    return record


def recorded_seconds() -> dict[str, float]:
    """Return how many seconds each file took that is recorded."""
    return {file: cost["seconds"] for file, cost in recorded().items()}


class CoreSeconds:
    """Adds to the last report of each file what its tests have cost this process and its descendants."""

    def __init__(self) -> None:
        self._before = _core_seconds()
        self._ends_file = False

    def pytest_collection_finish(self) -> None:
        """Leave out what this process has cost until now: nothing of that is the first file's."""
        self._before = _core_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        """Note whether the test is the last one of its file."""
        self._ends_file = nextitem is None or nextitem.path != item.path
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        """Add `core_seconds` to the report of a file's end: looking at all descendants takes milliseconds."""
        report: Any = yield
        if self._ends_file and call.when == "teardown":
            now = _core_seconds()
            report.core_seconds = max(0.0, now - self._before)
            self._before = now
        return report  # type: ignore[return-value]


class Recorder:
    """Adds up what the files of a run take, and records it.

    :param path: where the record is kept.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._costs: defaultdict[str, dict[str, float]] = defaultdict(lambda: {"seconds": 0.0, "core_seconds": 0.0})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one phase of a test."""
        costs = self._costs[report.nodeid.split("::", 1)[0]]
        costs["seconds"] += report.duration
        costs["core_seconds"] += getattr(report, "core_seconds", 0.0)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write the record of a run that passed: files that are gone leave it, those whose turn it was not stay."""
        if exitstatus == pytest.ExitCode.OK:
            kept = {file: costs for file, costs in recorded(self._path).items() if (REPOSITORY / file).exists()}
            lines = [
                f"  {json.dumps(file)}: {json.dumps({name: round(value, 1) for name, value in costs.items()})}"
                for file, costs in sorted((kept | self._costs).items())
            ]
            self._path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--record-durations`."""
    text = "record what each file takes: of a run of all tests that `make test` distributes"
    parser.addoption("--record-durations", action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Measure where tests run, and record where the reports arrive."""
    is_short = not config.getoption("deep", False)
    if config.getoption("record_durations") and is_short and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(DURATIONS))
    config.pluginmanager.register(CoreSeconds())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the tests into the order in which they start, where several processes take groups of them.

    These processes collect the tests. pytest-xdist leaves them `loadgroup`; there, `dist` is always "no".
    """
    if getattr(config.option, "loadgroup", False):
        files = dict.fromkeys(item.nodeid.split("::", 1)[0] for item in items)
        place = {file: number for number, file in enumerate(in_order(list(files), recorded_seconds()))}
        items.sort(key=lambda item: place[item.nodeid.split("::", 1)[0]])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """Let each process take a group at a time.

    pytest-xdist takes its own groups from node ids that it changes, which the present pytest does not let it do. And it
    gives a process its next group while up to two tests are left of the one before: a process that runs a file of one
    long test would hold back the next long file. Such a process gets the shortest group instead.
    """
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    seconds = recorded_seconds()

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

        def _assign_work_unit(self, node: WorkerController) -> None:
            if self._seconds_left(node) > LONG_SECONDS:
                self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
            super()._assign_work_unit(node)

        def _seconds_left(self, node: WorkerController) -> float:
            """Return how long the tests take that a process still has, if those of a file take equally long."""
            left = 0.0
            for unit in self.assigned_work[node].values():
                files = {nodeid.split("::", 1)[0] for nodeid in unit}
                total = sum(seconds.get(file, NEW_SECONDS) for file in files)
                left += total * list(unit.values()).count(False) / len(unit)
            return left

    return ByGroup(config, log)


def _core_seconds() -> float:
    """Return the time of all cores that this process and its descendants have taken, ended ones included."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = ended.ru_utime + ended.ru_stime
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            seconds += times.user + times.system
            if process.pid != os.getpid():
                seconds += times.children_user + times.children_system
    return seconds
