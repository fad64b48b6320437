from __future__ import annotations

import json
import stat
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.stores import StoreSettings

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS = IngestSettings(
    source="clicks",
    owner="owner",
    stream="clicks",
    output="/data/clicks",
    expires_at=NOW + timedelta(hours=1),
    store=StoreSettings(url="postgresql://u:hush@host/db"),
    kinesis=AwsSettings(region="eu-west-1", access_key_id="AKIA", secret_access_key="hush"),
)


def test_settings_survive_their_file(tmp_path: Path) -> None:
    SETTINGS.write(tmp_path / "s.json")
    assert IngestSettings.read(tmp_path / "s.json", NOW) == SETTINGS


def test_only_the_owner_can_read_the_file(tmp_path: Path) -> None:
    SETTINGS.write(tmp_path / "s.json")
    assert stat.S_IMODE((tmp_path / "s.json").stat().st_mode) == 0o600


def test_secrets_stay_out_of_logs() -> None:
    assert "hush" not in repr(SETTINGS)


def test_an_expired_file_is_refused(tmp_path: Path) -> None:
    SETTINGS.write(tmp_path / "s.json")
    with pytest.raises(ConfigurationError, match=r"expired at 2026-01-01T01:00:00Z; .* run the task again"):
        IngestSettings.read(tmp_path / "s.json", NOW + timedelta(hours=1))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.json: cannot be read: No such file"):
        IngestSettings.read(tmp_path / "nowhere.json", NOW)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"source": ')
    with pytest.raises(ConfigurationError, match=r"s\.json: not JSON"):
        IngestSettings.read(tmp_path / "s.json", NOW)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sauce": 1}, "unknown field 'sauce'"),
        ({"workers": "two"}, "field 'workers' must be a whole number; got 'two'"),
        ({"workers": True}, "field 'workers' must be a whole number; got True"),
        ({"until_caught_up": 1}, "field 'until_caught_up' must be true or false; got 1"),
        ({"max_leases": "x"}, "field 'max_leases' must be a whole number or null; got 'x'"),
        ({"expires_at": "tomorrow"}, "field 'expires_at' must be an instant"),
        ({"store": {"store": "redis"}}, "unknown store kind 'redis'"),
        ({"store": []}, "field 'store': expected a JSON object"),
    ],
)
def test_a_wrong_field_is_named_with_its_value(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    SETTINGS.write(tmp_path / "s.json")
    (tmp_path / "t.json").write_text(json.dumps({**json.loads((tmp_path / "s.json").read_text()), **changes}))
    with pytest.raises(ConfigurationError, match=message):
        IngestSettings.read(tmp_path / "t.json", NOW)


def test_a_missing_field_is_named(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text("{}")
    with pytest.raises(ConfigurationError, match="field 'source' is missing"):
        IngestSettings.read(tmp_path / "s.json", NOW)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stream": ""}, "'stream' must not be empty"),
        ({"workers": 0}, "'workers' must be positive; got 0"),
        ({"max_duration_seconds": -1.0}, "'max_duration_seconds' must be positive"),
        ({"idle_seconds": -1.0}, "'idle_seconds' must not be negative"),
        ({"transform": "module"}, "transform 'module' is not of the form 'module:function'"),
        ({"transform": ":f"}, "is not of the form"),
        ({"ownership_timeout_seconds": 10.0}, "at least four times the margin"),
    ],
)
def test_a_value_that_cannot_work_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        replace(SETTINGS, **changes).check()


def test_raw_batches_wait_below_the_output_unless_told_otherwise() -> None:
    assert SETTINGS.landing_root == "/data/clicks/_landing"
    assert replace(SETTINGS, landing="/scratch").landing_root == "/scratch"
