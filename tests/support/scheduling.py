"""Which tests one process runs after each other, and which are begun first, where several processes run them.

The tests of a file share servers, and those of a folder such as `tests/system/airflow` share what takes long to start,
so one process runs them: they are one group. The groups that take longest are begun first, by `tests/durations.json`,
so that no process is left with a long one at the end. `make durations` writes that file.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

REPOSITORY = Path(__file__).resolve().parents[2]
DURATIONS = REPOSITORY / "tests" / "durations.json"
"""How many seconds each file took when it was recorded."""
NEW_SECONDS = 30.0
"""For how long a file is taken that has no record: begun before most, and not before what is known to be long."""
AREA_PARTS = 2
"""How many parts the path of an area has: `tests/system`. Below it a folder is a group, and so is each file."""


def group_of(file: str) -> str:
    """Return the group of a test file: the file itself, or the folder of its area that it is in.

    :param file: below the repository, with slashes.
    """
    return "/".join(PurePosixPath(file).parts[: AREA_PARTS + 1])


def in_order(files: list[str], seconds: dict[str, float]) -> list[str]:
    """Return test files in the order in which they are begun: the groups that take longest first, each as it was.

    :param files: each once.
    :param seconds: how long files took, as far as they are recorded.
    """
    total: defaultdict[str, float] = defaultdict(float)
    for file in files:
        total[group_of(file)] += seconds.get(file, NEW_SECONDS)
    return sorted(files, key=lambda file: (-total[group_of(file)], group_of(file)))


def recorded() -> dict[str, float]:
    """Return how many seconds each file took that is recorded."""
    seconds: dict[str, float] = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    return seconds


class Recorder:
    """Adds up how long the files of a run take, and records it.

    :param path: where the record is kept.
    """

    def __init__(self, path: Path = DURATIONS) -> None:
        self._path = path
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one phase of a test."""
        self._seconds[report.nodeid.split("::", 1)[0]] += report.duration

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write down a run that was whole: the former record is gone with the files that are."""
        if exitstatus == pytest.ExitCode.OK:
            seconds = {file: round(taken, 1) for file, taken in sorted(self._seconds.items())}
            self._path.write_text(json.dumps(seconds, indent=2) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--record-durations`."""
    text = "write down how long each file takes: of a run of all that `make test` distributes"
    parser.addoption("--record-durations", action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Record durations, where it is asked for; the processes that run tests do not see all of them."""
    if config.getoption("record_durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the tests into the order in which they are begun, where several processes take groups of them.

    These processes collect the tests. pytest-xdist leaves them `loadgroup`; there, `dist` is always "no".
    """
    if getattr(config.option, "loadgroup", False):
        files = dict.fromkeys(item.nodeid.split("::", 1)[0] for item in items)
        place = {file: number for number, file in enumerate(in_order(list(files), recorded()))}
        items.sort(key=lambda item: place[item.nodeid.split("::", 1)[0]])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """Let each process take a group at a time.

    pytest-xdist takes its own groups from node ids that it changes, which the present pytest does not let it do.
    """
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid.split("::", 1)[0])

    return ByGroup(config, log)
