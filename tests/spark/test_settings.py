from __future__ import annotations

import json
import stat
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.coordinator import DEFAULT_OWNERSHIP_TIMEOUT, DEFAULT_SAFETY_MARGIN
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.readers import ReaderSettings
from airflow_provider_coordination.spark.settings import ITEM_LEASES, IngestSettings, SinkSettings
from airflow_provider_coordination.stores import StoreSettings

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS = IngestSettings(
    source="clicks",
    owner="owner",
    streams=("clicks",),
    output="/data/clicks",
    expires_at=NOW + timedelta(hours=1),
    store=StoreSettings(url="postgresql://u:hush@host/db"),
    kinesis=AwsSettings(region="eu-west-1", access_key_id="AKIA", secret_access_key="hush"),
)


def a_sink(name: str = "copy", output: str = "/data/copy", where: str | None = None) -> tuple[SinkSettings, ...]:
    return (SinkSettings(name=name, location=output, where=where),)


def test_settings_survive_their_file(tmp_path: Path) -> None:
    settings = replace(
        SETTINGS, sinks=(*a_sink(), *a_sink("large", "/data/large", "amount > 1")), downstream=("check",)
    )
    settings.write(tmp_path / "s.json")
    assert IngestSettings.read(tmp_path / "s.json", NOW) == settings


def test_only_the_owner_can_read_the_file(tmp_path: Path) -> None:
    SETTINGS.write(tmp_path / "s.json")
    assert stat.S_IMODE((tmp_path / "s.json").stat().st_mode) == 0o600


def test_secrets_stay_out_of_logs() -> None:
    assert "hush" not in repr(SETTINGS)


def test_a_secret_of_the_wrong_kind_is_not_told(tmp_path: Path) -> None:
    SETTINGS.write(tmp_path / "s.json")
    values = json.loads((tmp_path / "s.json").read_text())
    values["kinesis"]["secret_access_key"] = ["hush"]
    (tmp_path / "s.json").write_text(json.dumps(values))
    with pytest.raises(ConfigurationError, match="'secret_access_key' must be text or null; got list, which") as error:
        IngestSettings.read(tmp_path / "s.json", NOW)
    assert "hush" not in str(error.value)


def test_a_retry_policy_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="retry policy: max_attempts must be at least 1; got 0"):
        replace(SETTINGS, max_attempts=0).check()


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
        ({"streams": []}, "'streams' must not be empty"),
        ({"streams": ["a", "a"]}, "'streams' must name each stream once"),
        ({"workers": 0}, "'workers' must be positive; got 0"),
        ({"partitions_per_slot": 0}, "'partitions_per_slot' must be positive; got 0"),
        ({"reader": ReaderSettings(kind="s3")}, "'streams' and 'reader' are both given; .* a job reads one kind of"),
        ({"reader": ReaderSettings(kind="ftp"), "streams": ()}, "field 'kind' must be one of .*'s3'.*; got 'ftp'"),
        ({"max_duration_seconds": -1.0}, "'max_duration_seconds' must be positive"),
        ({"idle_seconds": -1.0}, "'idle_seconds' must not be negative"),
        ({"schema": " "}, "'schema' must not be empty; leave it out"),
        ({"max_parse_exceptions": -1}, "'max_parse_exceptions' must not be negative; got -1"),
        ({"max_saved_parse_exceptions": 101}, "'max_saved_parse_exceptions' must be from 0 to 100; got 101"),
        ({"sinks": a_sink(name="a b")}, "sink 'a b': the name is not usable"),
        ({"sinks": a_sink(name="dead_letter")}, "sink 'dead_letter': the name is taken by the job itself"),
        ({"sinks": a_sink(output="")}, "sink 'copy': its path must not be empty"),
        ({"sinks": a_sink(where="")}, "sink 'copy': 'where' must not be empty"),
        ({"sinks": (*a_sink(), *a_sink(output="/other"))}, "sink 'copy' is there twice"),
        ({"sinks": a_sink(output="/data/clicks/")}, "where readers of sink 'main' would find it"),
        ({"sinks": a_sink(output="/data/clicks/copy")}, "sink 'copy' is in '/data/clicks/copy', where readers of"),
        ({"dead_letter": "/data"}, "sink 'main' is in '/data/clicks', where readers of sink 'dead_letter'"),
        ({"sinks": a_sink(), "downstream": ("copy",)}, "handle 'copy' is the name of a sink"),
        ({"downstream": ("a", "a")}, "handle 'a' is named twice"),
        ({"downstream": ("",)}, "handle '' is not usable"),
        ({"downstream": tuple(map(str, range(100)))}, "1 sinks and 100 handles are too many"),
        ({"transform": "module"}, "transform 'module' is not of the form 'module:function'"),
        ({"transform": ":f"}, "is not of the form"),
        ({"ownership_timeout_seconds": 3.9 * SETTINGS.safety_margin_seconds}, "at least four times the margin"),
    ],
)
def test_a_value_that_cannot_work_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        replace(SETTINGS, **changes).check()


def test_a_job_runs_its_leases_by_the_defaults_of_the_coordinator_unless_told_otherwise() -> None:
    assert SETTINGS.ownership_timeout_seconds == DEFAULT_OWNERSHIP_TIMEOUT.total_seconds()
    assert SETTINGS.safety_margin_seconds == DEFAULT_SAFETY_MARGIN.total_seconds()


def test_a_job_that_reads_items_takes_some_partitions_after_the_other_unless_told_otherwise() -> None:
    items = replace(SETTINGS, streams=(), reader=ReaderSettings(kind="own", reader="module:Reader"))
    items.check()
    assert (SETTINGS.lease_limit, items.lease_limit, replace(items, max_leases=3).lease_limit) == (None, ITEM_LEASES, 3)


def test_raw_batches_wait_below_the_output_unless_told_otherwise() -> None:
    assert SETTINGS.landing_root == "/data/clicks/_landing"
    assert replace(SETTINGS, landing="/scratch").landing_root == "/scratch"


def test_a_folder_that_readers_of_the_dataset_pass_over_may_be_another_sinks() -> None:
    replace(SETTINGS, dead_letter="/data/clicks/_dead").check()


def test_the_dead_letters_are_published_first() -> None:
    settings = replace(SETTINGS, dead_letter="/data/dead", sinks=a_sink())
    assert [sink.name for sink in settings.all_sinks] == ["dead_letter", "main", "copy"]


@pytest.mark.parametrize("changes", [{"transform": "m:f"}, {"schema": "a INT"}, {"where": "true"}, {"sinks": a_sink()}])
def test_what_looks_into_the_records_is_not_published_as_it_was_landed(changes: dict[str, Any]) -> None:
    assert SETTINGS.publishes_landed and not replace(SETTINGS, **changes).publishes_landed
