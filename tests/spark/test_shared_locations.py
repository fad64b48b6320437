"""How the driver handles the check results of executors; see tests/integration/test_slots.py for real executors."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import patch

import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.delivery import SinkUnavailableError
from airflow_provider_coordination.spark.shared_locations import (
    LOCAL_FOLDERS,
    LocationCheckRequest,
    LocationCheckResult,
    SharedLocations,
)

NOWHERE = AwsSettings(
    region="us-east-1",
    endpoint_url="http://127.0.0.1:9",
    access_key_id="test",
    secret_access_key="test",
    max_attempts=1,
)


def check_on(locations: SharedLocations, executor: str) -> None:
    """Check the locations on an executor, which is known by its local folders."""
    with locations.checking() as (request, results), patch.dict(os.environ, {LOCAL_FOLDERS: executor}):
        results.append(result_of(request))


def check_and_delete(locations: SharedLocations) -> None:
    """Check the locations on an executor whose files are gone before the driver reads them."""
    with locations.checking() as (request, results):
        result = result_of(request)
        Path(result.files[0]).unlink()
        results.append(result)


def report(locations: SharedLocations, result: LocationCheckResult) -> None:
    """Report this result of an executor."""
    with locations.checking() as (_, results):
        results.append(result)


def result_of(request: LocationCheckRequest) -> LocationCheckResult:
    """Return the result of an executor that was not checked before."""
    result = request.run(0)
    assert result is not None
    return result


def test_every_location_is_checked_without_leaving_files(tmp_path: Path) -> None:
    roots = [tmp_path / "landing", tmp_path / "lake"]
    locations = SharedLocations([str(root) for root in roots])
    with locations.checking() as (request, results):
        results.append(result_of(request))
        assert [len(list(root.rglob("*.*"))) for root in roots] == [1, 1]
    assert not [path for root in roots for path in root.rglob("*")]


def test_checked_executor_is_not_rechecked_and_others_do_not_land(tmp_path: Path) -> None:
    locations = SharedLocations([str(tmp_path)])
    assert locations.known_executors_only is None
    check_on(locations, "first")
    assert locations.known_executors_only is not None
    with patch.dict(os.environ, {LOCAL_FOLDERS: "first"}):
        assert locations.known_executors_only.run(0) is None
    with patch.dict(os.environ, {LOCAL_FOLDERS: "second"}):
        assert not result_of(locations.known_executors_only).may_land


def test_file_missing_for_the_driver_is_named(tmp_path: Path) -> None:
    locations = SharedLocations([str(tmp_path)])
    with pytest.raises(ConfigurationError, match=r"is not shared by all workers: the driver does not find the file th"):
        check_and_delete(locations)
    assert locations.known_executors_only is None


def test_location_unavailable_to_an_executor_is_no_configuration_error(tmp_path: Path) -> None:
    uri = "s3://lake/landing"
    result = result_of(LocationCheckRequest(frozenset(), (uri,), "probe", Access(((uri, NOWHERE),))))
    assert result.is_temporary
    locations = SharedLocations([str(tmp_path)])
    with pytest.raises(SinkUnavailableError, match=r"is unavailable for an executor: .* cannot use 's3://lake"):
        report(locations, result)
    assert locations.known_executors_only is None
