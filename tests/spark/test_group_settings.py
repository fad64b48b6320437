"""The settings of a group's jobs are readable with the group's key only."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.group_settings import GroupSettings, group_key, key_id, seal, unseal
from airflow_provider_coordination.spark.redaction import Redaction
from airflow_provider_coordination.spark.settings import IngestSettings, SettingsReference
from airflow_provider_coordination.stores import StoreSettings
from tests.support.job_settings import ingest

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECRET = "a-secret-of-aws"
AIRFLOWS, OTHERS = "fernet-key-of-airflow", "fernet-key-of-another-airflow"


@pytest.fixture
def settings() -> IngestSettings:
    return ingest(
        source="clicks",
        owner="job",
        streams=("clicks",),
        output="/lake",
        expires_at=NOON,
        store=StoreSettings.from_url("postgresql://u:password-of-store@h/d"),
        aws=AwsSettings(region="eu-west-1", access_key_id="A", secret_access_key=SECRET),
    )


def test_sealed_settings_are_read_with_the_same_key(settings: IngestSettings) -> None:
    sealed = seal(settings, group_key(AIRFLOWS, "small"))
    assert unseal(sealed, group_key(AIRFLOWS, "small"), "job", NOON - timedelta(seconds=1)) == settings
    assert SECRET not in sealed and len(sealed) < 4000


@pytest.mark.parametrize("key", [group_key(AIRFLOWS, "large"), group_key(OTHERS, "small")])
def test_other_key_reads_nothing(settings: IngestSettings, key: str) -> None:
    with pytest.raises(ConfigurationError, match="request of job 'job': its settings were not sealed with the key"):
        unseal(seal(settings, group_key(AIRFLOWS, "small")), key, "job", NOON - timedelta(seconds=1))


@pytest.mark.parametrize(
    ("owner", "now", "message"),
    [
        ("another", NOON - timedelta(seconds=1), "they belong to job 'job', and this is a driver of job 'another'"),
        ("job", NOON, "expired at 2026-01-01T12:00:00Z"),
    ],
)
def test_settings_serve_their_own_job_in_time(
    settings: IngestSettings, owner: str, now: datetime, message: str
) -> None:
    key = group_key(AIRFLOWS, "small")
    with pytest.raises(ConfigurationError, match=message):
        unseal(seal(settings, key), key, owner, now)


def test_key_id_differs_by_key_and_reveals_nothing() -> None:
    keys = [group_key(each, group) for each in (AIRFLOWS, OTHERS) for group in ("small", "large")]
    assert len({key_id(key) for key in keys}) == 4
    assert all(key_id(key) not in key for key in keys)


def test_settings_of_a_host_travel_without_showing_secrets(tmp_path: Path) -> None:
    key = group_key(AIRFLOWS, "small")
    store = StoreSettings.from_url(f"sqlite:///{tmp_path}/c.db")
    settings = GroupSettings(group="small", secret_key=key, source="@small", owner="host", expires_at=NOON, store=store)
    settings.write(tmp_path / "host.json")
    read = GroupSettings.read(SettingsReference(uri=str(tmp_path / "host.json")), "host", NOON - timedelta(hours=1))
    assert read == settings
    assert key not in repr(read) and Redaction(read).text(f"the key is {key}") == "the key is ***"
