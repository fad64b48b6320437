"""Slots of a real Spark land rows, and the first ones check whether all share the location."""

from __future__ import annotations

import os
import platform
import re
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pyarrow as pa
import pytest

from airflow_provider_coordination import __version__
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark import spark_errors
from airflow_provider_coordination.spark.membership import LANDING
from airflow_provider_coordination.spark.shared_locations import SharedLocations
from airflow_provider_coordination.spark.slots import (
    SlotCount,
    check_executors,
    check_locations,
    land_in_slots,
    registered_slots,
    warm_up_executors,
)
from airflow_provider_coordination.spark.spark_errors import ExecutorPythonError
from tests.support.executor_python import (
    another_executor,
    executor_ahead,
    executor_with_own_disk,
    executors_running,
    older_python,
    python_with,
    python_without,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Row:
    """What a slot lands of a partition."""

    partition: int
    of: int


def land(folder: Path, plans: Sequence[int]) -> list[Row]:
    """Land partitions that are numbers."""
    for plan in plans:
        (folder / str(plan)).touch()
    return [Row(plan, len(plans)) for plan in plans]


def probing(folder: Path, plans: Sequence[int]) -> list[Row]:
    """Return how many probes there are while a slot lands."""
    return [Row(plan, len(list(folder.rglob("*.*")))) for plan in plans]


def landing_in(root: Path, plans: Sequence[int]) -> list[Row]:
    """Land partitions below the place."""
    for plan in plans:
        (root / f"{plan}.parquet").write_bytes(b"landed")
    return [Row(plan, len(plans)) for plan in plans]


def failing(plans: Sequence[int]) -> list[Row]:
    """Fail."""
    raise ValueError(f"partitions {plans} are cursed")


def importing(plans: Sequence[int]) -> list[Row]:
    """Import what a client of AWS needs."""
    import boto3

    return [Row(plan, len(boto3.__version__)) for plan in plans]


@pytest.fixture
def places(tmp_path: Path) -> SharedLocations:
    return SharedLocations([str(tmp_path / "landing")])


@pytest.fixture
def driver_only(tmp_path: Path) -> str:
    """A path that leads to a folder in this process alone."""
    return f"/proc/self/fd/{os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)}/landing"


def test_each_slot_lands_its_partitions_and_returns_rows(spark: SparkSession, tmp_path: Path) -> None:
    rows = land_in_slots(spark.sparkContext, [[1, 2], [3], []], partial(land, tmp_path), Row)
    assert rows == [Row(1, 2), Row(2, 2), Row(3, 1)]


def test_shared_location_is_checked_by_the_first_landing(
    spark: SparkSession, places: SharedLocations, tmp_path: Path
) -> None:
    assert land_in_slots(spark.sparkContext, [[1]], partial(land, tmp_path), Row, places) == [Row(1, 1)]
    assert places.known_executors_only is not None
    assert not list((tmp_path / "landing").rglob("*"))


def test_checked_location_is_not_checked_again(spark: SparkSession, places: SharedLocations, tmp_path: Path) -> None:
    counting = partial(probing, tmp_path)
    [first] = land_in_slots(spark.sparkContext, [[1]], counting, Row, places)
    [second] = land_in_slots(spark.sparkContext, [[1]], counting, Row, places)
    assert first.of > 0
    assert second.of == 0


def test_unreachable_location_fails_the_first_landing_at_once(
    spark: SparkSession, driver_only: str, tmp_path: Path
) -> None:
    places = SharedLocations([driver_only])
    with pytest.raises(ConfigurationError, match=r"is not shared by all workers: .*; give a path or URI that the dr"):
        land_in_slots(spark.sparkContext, [[1]], partial(land, tmp_path), Row, places)
    assert places.known_executors_only is None
    assert not (tmp_path / "1").exists()


def test_slots_match_the_tasks_of_the_executors(
    spark: SparkSession,
) -> None:
    context = spark.sparkContext
    cores = context._jsc.sc().schedulerBackend().defaultParallelism()
    assert registered_slots(context) == cores
    assert SlotCount(context).of_round(64, leave_slot=False) == cores
    assert SlotCount(context).lasting() == cores


def test_slots_without_work_are_checked(spark: SparkSession, driver_only: str) -> None:
    with pytest.raises(ConfigurationError, match="is not shared by all workers"):
        check_locations(spark.sparkContext, SharedLocations([driver_only]))


def test_location_is_checked_alone_if_spark_makes_the_tasks(spark: SparkSession, places: SharedLocations) -> None:
    check_locations(spark.sparkContext, places)
    assert places.known_executors_only is not None


def test_slot_error_names_the_cause_and_leaves_no_probe(
    spark: SparkSession, places: SharedLocations, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match=r"ValueError: partitions \[1\] are cursed"):
        land_in_slots(spark.sparkContext, [[1]], failing, Row, places)
    assert not [path for path in (tmp_path / "landing").rglob("*") if len(path.suffixes) == 0 and path.is_file()]


def test_late_executor_is_checked_and_lands_in_the_same_round(
    spark: SparkSession, places: SharedLocations, tmp_path: Path
) -> None:
    root = tmp_path / "landing"
    land_in_slots(spark.sparkContext, [[1]], partial(landing_in, root), Row, places)
    first = places.known_executors_only
    with executors_running(spark.sparkContext, another_executor(tmp_path)):
        rows = land_in_slots(spark.sparkContext, [[2], [3]], partial(landing_in, root), Row, places)
    assert rows == [Row(2, 1), Row(3, 1)]
    assert first is not None
    assert places.known_executors_only is not None
    assert first.known < places.known_executors_only.known
    assert sorted(path.name for path in root.iterdir()) == ["1.parquet", "2.parquet", "3.parquet"]


def test_late_executor_without_the_location_is_named(
    spark: SparkSession, places: SharedLocations, tmp_path: Path
) -> None:
    root = tmp_path / "landing"
    land_in_slots(spark.sparkContext, [[1]], partial(landing_in, root), Row, places)
    with (
        executors_running(spark.sparkContext, executor_with_own_disk(root, tmp_path)),
        pytest.raises(ConfigurationError) as raised,
    ):
        land_in_slots(spark.sparkContext, [[2]], partial(land, tmp_path), Row, places)
    assert f"path '{root}' is not shared by all workers: {socket.gethostname()} cannot use '{root}': " in str(
        raised.value
    )
    assert not (tmp_path / "2").exists()
    assert [path.name for path in root.iterdir()] == ["1.parquet"]


@pytest.mark.parametrize(("ahead", "which"), [(600, "ahead of"), (-600, "behind")])
def test_clock_ten_minutes_off_is_named_before_landing(
    spark: SparkSession, places: SharedLocations, tmp_path: Path, ahead: int, which: str
) -> None:
    said = rf"the clock of executor {socket.gethostname()} is [56]\d\d s {which} the driver's: it is \S+Z there and"
    with (
        executors_running(spark.sparkContext, executor_ahead(ahead, tmp_path)),
        pytest.raises(ConfigurationError, match=rf"^{said} .*: let NTP set both$"),
    ):
        land_in_slots(spark.sparkContext, [[1]], partial(land, tmp_path), Row, places)


def test_clock_a_minute_off_does_no_harm(spark: SparkSession, places: SharedLocations, tmp_path: Path) -> None:
    with executors_running(spark.sparkContext, executor_ahead(60, tmp_path)):
        assert land_in_slots(spark.sparkContext, [[1]], partial(land, tmp_path), Row, places) == [Row(1, 1)]


@pytest.mark.parametrize("module", ["pyarrow", "boto3", "airflow_provider_coordination"])
def test_executor_without_a_module_is_named_with_its_python(spark: SparkSession, tmp_path: Path, module: str) -> None:
    python = python_without(module, tmp_path)
    expected = (
        rf"executor {socket.gethostname()} \(.*, Python {platform.python_version()}\): No module named '{module}'"
    )
    with (
        executors_running(spark.sparkContext, python),
        pytest.raises(ExecutorPythonError, match=rf"^{expected}; install it there, or name another Python in 'spark\."),
    ):
        land_in_slots(spark.sparkContext, [[1]], importing, Row)


def test_executor_with_old_pyarrow_is_named_with_both_versions(spark: SparkSession, tmp_path: Path) -> None:
    old = f"{int(pa.__version__.partition('.')[0]) - 2}.0.0"
    expected = f"pyarrow {old} is too old for {pa.__version__} on the driver; pyarrow "
    with (
        executors_running(spark.sparkContext, python_with("pyarrow", old, tmp_path)),
        pytest.raises(ExecutorPythonError, match=rf"{re.escape(expected)}\d+ or newer is supported; install it there"),
    ):
        check_executors(spark.sparkContext)


def test_executor_with_pandas_3_is_named_with_its_python(spark: SparkSession, tmp_path: Path) -> None:
    expected = (
        rf"executor \S+ \(.*\): Spark {spark.version} does not support pandas 3.0.0; run `pip install 'pandas>=2.2,<3'`"
    )
    with (
        executors_running(spark.sparkContext, python_with("pandas", "3.0.0", tmp_path)),
        pytest.raises(ExecutorPythonError, match=f"^{expected}; install it there, or name another Python"),
    ):
        check_executors(spark.sparkContext)


def test_executors_of_the_driver_need_no_check(spark: SparkSession, tmp_path: Path) -> None:
    tracker = spark.sparkContext.statusTracker()
    before = len(tracker.getJobIdsForGroup(LANDING))
    check_executors(spark.sparkContext)
    assert len(tracker.getJobIdsForGroup(LANDING)) == before
    with executors_running(spark.sparkContext, another_executor(tmp_path)):
        check_executors(spark.sparkContext)
    assert len(tracker.getJobIdsForGroup(LANDING)) == before + 1


def test_warm_up_runs_a_task_on_executors_of_the_driver(spark: SparkSession) -> None:
    tracker = spark.sparkContext.statusTracker()
    before = len(tracker.getJobIdsForGroup(LANDING))
    assert warm_up_executors(spark.sparkContext, ["json"], 60.0)
    assert len(tracker.getJobIdsForGroup(LANDING)) > before


def test_warm_up_without_room_gives_up_and_leaves_other_jobs(spark: SparkSession, tmp_path: Path) -> None:
    slots, go_on = registered_slots(spark.sparkContext), tmp_path / "go on"

    def occupies(number: int) -> int:
        (tmp_path / str(number)).touch()
        while not go_on.exists():
            time.sleep(0.01)
        return number

    with ThreadPoolExecutor(1) as pool:
        others = pool.submit(spark.sparkContext.parallelize(range(slots), slots).map(occupies).collect)
        while not others.done() and not all((tmp_path / str(number)).exists() for number in range(slots)):
            time.sleep(0.01)
        try:
            assert not warm_up_executors(spark.sparkContext, [], 0.2)
        finally:
            go_on.touch()
        assert others.result() == list(range(slots))
    assert warm_up_executors(spark.sparkContext, [], 60.0)


def test_rehearsal_that_takes_too_long_is_cancelled(spark: SparkSession, tmp_path: Path) -> None:
    begun, go_on = [], tmp_path / "go on"

    def waits(number: int) -> int:
        while not go_on.exists():
            time.sleep(0.01)
        return number

    def rehearse() -> None:
        begun.append(1)
        spark.sparkContext.parallelize([1], 1).map(waits).collect()

    try:
        assert warm_up_executors(spark.sparkContext, [], 5.0, rehearse), "executors are ready all the same"
    finally:
        go_on.touch()
    assert begun == [1]


def test_warm_up_names_a_module_that_executors_do_not_have(spark: SparkSession) -> None:
    with pytest.raises(ExecutorPythonError, match="No module named 'no_such_module'"):
        warm_up_executors(spark.sparkContext, ["no_such_module"], 60.0)


def test_executor_without_python_is_named_with_its_host(spark: SparkSession, tmp_path: Path) -> None:
    python = str(tmp_path / "python3.12")
    with (
        executors_running(spark.sparkContext, python),
        pytest.raises(
            ExecutorPythonError, match=rf"^executor \S+: there is no Python '{python}'; install one there, or"
        ),
    ):
        land_in_slots(spark.sparkContext, [[1]], importing, Row)


def test_executors_of_another_python_are_reported_with_versions(spark: SparkSession, tmp_path: Path) -> None:
    ours = ".".join(platform.python_version_tuple()[:2])
    with (
        executors_running(spark.sparkContext, older_python(tmp_path)),
        pytest.raises(
            ExecutorPythonError, match=rf"^executors run Python 3.9 and the driver runs Python {ours}; install Python"
        ),
    ):
        land_in_slots(spark.sparkContext, [[1]], importing, Row)


def test_executor_with_another_package_version_is_named(spark: SparkSession) -> None:
    with (
        patch.object(spark_errors, "__version__", "9.9.9"),
        pytest.raises(
            ExecutorPythonError, match=rf"airflow_provider_coordination is {__version__}, but 9.9.9 on the driver"
        ),
    ):
        land_in_slots(spark.sparkContext, [[1]], importing, Row)
