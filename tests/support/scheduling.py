"""Which tests one process runs after each other, and which are begun first, where several processes run them.

For `--dist loadgroup`. pytest-xdist takes the groups from node ids that it changes, which the present pytest does not
let it do; so they are made from the files' names here.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

SHARING_AIRFLOW = frozenset({"test_acknowledgments", "test_airflow_jobs", "test_backfills", "test_reopening_source"})
"""The files of system tests that share an Airflow: it takes half a minute to start, and two gigabytes."""
SHARING_THE_API = frozenset({"test_http_acknowledgment", "test_ui_api", "test_ui_security"})
"""The files that ask Airflow's API server, made in their own process: that takes as long as all the tests of one."""
FIRST = ("test_soak", *sorted(SHARING_AIRFLOW))
LONG = (
    "test_store_outage",
    "test_competing_processes",
    "test_killed_processes",
    "test_store_contract",
    "test_store_cost",
    "test_spark_delivery",
    "test_frame_landing",
    "test_acknowledgment_safety",
    "test_lease_safety",
    "test_trigger_load",
    "test_failover",
    "test_policy",
    "test_acquire_scale",
)
"""The files that take longest: begun first, and these behind the other system tests, so that no process is left with
one at the end."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """Let each process take a file at a time, and one of them all files that share the Airflow."""
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = PurePosixPath(nodeid.split("::", 1)[0])
            if "browser" in file.parts:  # these have an Airflow of their own
                return "browser"
            if file.stem in SHARING_THE_API:
                return "api"
            return "airflow" if file.stem in SHARING_AIRFLOW and "system" in file.parts else str(file)

    return ByGroup(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests into the order in which they are begun.

    :raises pytest.UsageError: if a file shares the Airflow and does not say so: it would start one of its own.
    """
    for item in items:
        names: Any = getattr(item, "fixturenames", ())
        if "airflow" in names and "system" in item.path.parts and item.path.stem not in SHARING_AIRFLOW:
            raise pytest.UsageError(f"{item.path} shares the Airflow: add it to SHARING_AIRFLOW in {__file__}")
    items.sort(key=_place)


def _place(item: pytest.Item) -> tuple[int, int]:
    stem = item.path.stem
    if stem in FIRST:
        return 0, FIRST.index(stem)
    if "system" in item.path.parts:
        return 1, 0
    return (2, LONG.index(stem)) if stem in LONG else (3, 0)
