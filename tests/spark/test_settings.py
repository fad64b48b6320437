"""Settings of a job are validated, written and read."""

from __future__ import annotations

import json
import stat
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.held_leases import DEFAULT_OWNERSHIP_TIMEOUT, DEFAULT_SAFETY_MARGIN
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.spark.settings import IngestSettings, SettingsReference
from airflow_provider_coordination.spark.sink_settings import SinkSettings
from airflow_provider_coordination.stores import StoreSettings
from tests.support.job_settings import TOPICS, changed, parquet, reads_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS = IngestSettings(
    source="clicks",
    owner="owner",
    writes=(parquet("/data/clicks"),),
    landing_path="/data/clicks/_landing",
    expires_at=NOW + timedelta(hours=1),
    store=StoreSettings.from_url("postgresql://u:hush@host/db"),
    reads=reads_of(
        KinesisStreams(
            streams=("clicks",), aws=AwsSettings(region="eu-west-1", access_key_id="AKIA", secret_access_key="hush")
        )
    ),
)


def beside_main(path: str = "/data/copy", name: str = "copy", where: str | None = None) -> tuple[SinkSettings, ...]:
    return (*SETTINGS.writes, parquet(path, name, where))


def read(path: Path, now: datetime, owner: str = "owner") -> IngestSettings:
    return IngestSettings.read(SettingsReference(uri=str(path)), owner, now)


def test_settings_survive_their_file(tmp_path: Path) -> None:
    settings = changed(
        SETTINGS,
        writes=(*beside_main(), parquet("/data/large", "large", "amount > 1")),
        by=("check",),
        timeout=7,
        schema="at TIMESTAMP",
        event_time="at",
        earliest=NOW,
    )
    settings.write(tmp_path / "s.json")
    assert read(tmp_path / "s.json", NOW) == settings


def test_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    SETTINGS.write(tmp_path / "s.json")
    assert stat.S_IMODE((tmp_path / "s.json").stat().st_mode) == 0o600


def test_secrets_stay_out_of_logs() -> None:
    assert "hush" not in repr(SETTINGS)


def test_secret_of_the_wrong_kind_is_not_shown(tmp_path: Path) -> None:
    SETTINGS.write(tmp_path / "s.json")
    values = json.loads((tmp_path / "s.json").read_text())
    values["reads"]["settings"]["aws"]["secret_access_key"] = ["hush"]
    (tmp_path / "s.json").write_text(json.dumps(values))
    with pytest.raises(ConfigurationError, match="'secret_access_key' must be text or null; got list, which") as error:
        read(tmp_path / "s.json", NOW)
    assert "hush" not in str(error.value)


def test_unusable_retry_policy_is_refused(tmp_path: Path) -> None:
    SETTINGS.write(tmp_path / "s.json")
    values = json.loads((tmp_path / "s.json").read_text())
    values["retry_policy"]["max_attempts"] = 0
    (tmp_path / "t.json").write_text(json.dumps(values))
    with pytest.raises(ConfigurationError, match="retry policy: max_attempts must be at least 1; got 0"):
        read(tmp_path / "t.json", NOW)


def test_expired_file_is_refused(tmp_path: Path) -> None:
    SETTINGS.write(tmp_path / "s.json")
    with pytest.raises(ConfigurationError, match=r"expired at 2026-01-01T01:00:00Z; .* run the task again"):
        read(tmp_path / "s.json", NOW + timedelta(hours=1))


def test_settings_of_another_job_are_refused(tmp_path: Path) -> None:
    SETTINGS.write(tmp_path / "s.json")
    with pytest.raises(ConfigurationError, match="belong to job 'owner', and this is a driver of job 'another'"):
        read(tmp_path / "s.json", NOW, owner="another")


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.json: cannot be read: No such file"):
        read(tmp_path / "nowhere.json", NOW)


def test_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"source": ')
    with pytest.raises(ConfigurationError, match=r"s\.json: not JSON"):
        read(tmp_path / "s.json", NOW)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sauce": 1}, "unknown field 'sauce'"),
        ({"workers": "two"}, "field 'workers' must be a whole number; got 'two'"),
        ({"workers": True}, "field 'workers' must be a whole number; got True"),
        ({"rounds": {"until_caught_up": 1}}, "field 'rounds': field 'until_caught_up' must be true or false; got 1"),
        ({"leases": {"max_leases": "x"}}, "field 'leases': field 'max_leases' must be a whole number or null; got 'x'"),
        ({"expires_at": "tomorrow"}, "field 'expires_at' must be an instant"),
        ({"store": {"kind": "redis"}}, "store 'redis' is not known"),
        ({"store": []}, "field 'store': expected a JSON object"),
    ],
)
def test_wrong_field_is_named_with_its_value(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    SETTINGS.write(tmp_path / "s.json")
    (tmp_path / "t.json").write_text(json.dumps({**json.loads((tmp_path / "s.json").read_text()), **changes}))
    with pytest.raises(ConfigurationError, match=message):
        read(tmp_path / "t.json", NOW)


def test_missing_field_is_named(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text("{}")
    with pytest.raises(ConfigurationError, match="field 'source' is missing"):
        read(tmp_path / "s.json", NOW)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"streams": ()}, "KinesisStreams: field 'streams' is missing; name a stream, or give name_pattern or tags"),
        ({"streams": ("a", "a")}, "KinesisStreams: field 'streams' names stream 'a' twice, as 'a' and 'a'"),
        ({"streams": ("",)}, "KinesisStreams: field 'streams' has ''; give a name of 1 to 128 letters"),
        ({"workers": 0}, "'workers' must be positive; got 0"),
        ({"reads": ReadsSettings(kind="")}, "what is read: field 'kind' must not be empty"),
        ({"reads": ReadsSettings(kind="k", settings={"reader": "m"})}, "'reader' must be of the form 'module:class'"),
        ({"reads": ReadsSettings(kind="ftp")}, "kind of source 'ftp' is not known; the known names are .*'s3'"),
        ({"max_duration": -1.0}, "RoundSettings: field 'max_duration' must be positive; got -PT1S"),
        ({"freshness": 0.5}, "RoundSettings: field 'freshness' must be at least PT1S; got PT0.5S"),
        (
            {"freshness": 2.5, "writes": (SinkSettings(name="lake", kind="delta", location="/data/lake"),)},
            "RoundSettings: field 'freshness' must be above PT2.5S, the shortest time between commits to sink 'lake'",
        ),
        ({"idle_duration": -1.0}, "RoundSettings: field 'idle_duration' must be at least PT0S; got -PT1S"),
        ({"timeout": 0}, "AcknowledgmentSettings: field 'timeout' must be positive; got PT0S"),
        ({"max_leases": 0}, "LeaseSettings: field 'max_leases' must be at least 1; got 0"),
        (
            {"max_leases_to_steal": 0},
            "LeaseSettings: field 'max_leases_to_steal' must be at least 1; got 0",
        ),
        ({"handover_timeout": 0}, "LeaseSettings: field 'handover_timeout' must be positive; got PT0S"),
        ({"balance_by": "size"}, "LeaseSettings: field 'balance_by' must be one of count, throughput; got 'size'"),
        ({"dead_letter_path": " "}, "BadRecordSettings: field 'dead_letter_path' must not be empty; leave it out"),
        ({"schema": " "}, "'schema' must not be empty; leave it out"),
        ({"max_parse_exceptions": -1}, "'max_parse_exceptions' must be at least 0; got -1"),
        ({"max_saved_parse_exceptions": 101}, "'max_saved_parse_exceptions' must be from 0 to 100; got 101"),
        ({"keeps_rejected": True}, "'keeps_rejected' needs 'dead_letter_path', the path for rejected"),
        (
            {"earliest": NOW},
            "RejectionSettings: field 'event_time' is missing, but 'earliest' is given: name the column",
        ),
        ({"event_time": "at"}, "RejectionSettings: field 'event_time' has no bound: give 'earliest'"),
        ({"event_time": "at" * 500, "latest": NOW}, "field 'event_time' must have at most 128 characters"),
        ({"event_time": "at", "latest": NOW}, "'event_time' is 'at', and there is no 'schema' to parse it"),
        (
            {"event_time": "at", "earliest": NOW + timedelta(seconds=1), "latest": NOW},
            "field 'earliest' must not be after 'latest', 2026-01-01T00:00:00.000000Z: every record would be rejected",
        ),
        ({"writes": ()}, "'writes' must not be empty"),
        ({"writes": beside_main(name="a b")}, "field 'writes': the name 'a b' is invalid"),
        ({"writes": beside_main(name="dead_letter")}, "the name 'dead_letter' is reserved for the dead-letter sink"),
        ({"writes": beside_main("")}, "sink 'copy' of field 'writes': its location must not be empty"),
        ({"writes": beside_main(where="")}, "sink 'copy' of field 'writes': 'where' must not be empty"),
        ({"writes": beside_main(name="main")}, "field 'writes': number 1 and number 2 both have the name 'main'; give"),
        (
            {"writes": beside_main("/data/clicks/c")},
            "sink 'copy' of .* is in '/data/clicks/c', where readers of sink",
        ),
        (
            {"dead_letter_path": "/data"},
            "sink 'main' .* is in '/data/clicks', where readers of field 'dead_le",
        ),
        ({"dead_letter_path": "/data/clicks/d"}, "field 'dead_letter_path' of BadRecordSettings is in '/data/clicks/d"),
        (
            {"landing_path": "/data/clicks/raw"},
            "field 'landing_path' is '/data/clicks/raw', where readers of sink",
        ),
        ({"landing_path": "landing"}, "^field 'landing_path' is 'landing', which depends on the working directory"),
        (
            {"dead_letter_path": "~/dead"},
            "^field 'dead_letter_path' of BadRecordSettings is '~/dead', which depends on",
        ),
        (
            {"writes": beside_main("copy/x")},
            "^the location of sink 'copy' of field 'writes' is 'copy/x', which depends",
        ),
        (
            {"dead_letter_path": "file:///data/clicks/_landing/_dead"},
            "^field 'dead_letter_path' of BadRecordSettings is in 'file:.*, inside 'landing_path' '/data/clicks/_land",
        ),
        (
            {"landing_path": "/data/copy", "writes": beside_main("/data/copy/a")},
            "^sink 'copy' .* inside 'landing_path'",
        ),
        ({"writes": beside_main(), "by": ("copy",)}, "field 'by': 'copy' is the name of a sink"),
        ({"by": ("a", "a")}, "field 'by' must name each handle once, and not 'a' twice"),
        ({"by": "check"}, "field 'by' must be 'job', 'downstream' or a list of names; got 'check'"),
        ({"by": ()}, r"field 'by' must be 'job', 'downstream' or a list of names; got \[\]"),
        ({"by": ("",)}, "field 'by' must have names of 1 to 128 printable"),
        ({"by": tuple(map(str, range(100)))}, "1 sinks and 100 handles are too many"),
        ({"transform": "module"}, "field 'transform' must be of the form 'module:function', .*; got 'module'"),
        ({"transform": ":f"}, "must be of the form 'module:function'"),
        ({"computed": {}}, "field 'computed' must be an object of columns and SQL expressions"),
        ({"computed": {"page": " "}}, "field 'computed': column 'page' must have a SQL expression"),
        ({"computed": {"_batch_id": "'x'"}}, "'computed' names a column '_batch_id', which cannot be computed"),
        ({"ownership_timeout": 3.9 * SETTINGS.safety_margin}, "at least four times the margin"),
    ],
)
def test_invalid_value_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        changed(SETTINGS, **changes).check()


def test_leases_default_to_those_of_the_coordinator() -> None:
    assert SETTINGS.ownership_timeout == DEFAULT_OWNERSHIP_TIMEOUT
    assert SETTINGS.safety_margin == DEFAULT_SAFETY_MARGIN


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/data/lake", "/data/lake/"),
        ("/data/lake", "file:///data/lake"),
        ("/data/lake", "/data//x/../lake"),
        ("s3://lake/clicks", "s3a://lake/clicks/"),
        ("hdfs://name:8020/lake", "hdfs://name:8020//lake"),
    ],
)
def test_sinks_in_one_location_are_refused_in_any_spelling(one: str, other: str) -> None:
    for writes in ((parquet(one), parquet(other, "copy")), (parquet(other), parquet(one, "copy"))):
        with pytest.raises(
            ConfigurationError,
            match=r"^sink 'main' of field 'writes' and sink 'copy' of .* have the same location",
        ):
            replace(SETTINGS, writes=writes, landing_path="/landing").check()


@pytest.mark.parametrize(
    ("kinds", "location"),
    [
        (("delta", "delta"), "/data/lake"),
        (("delta", "parquet"), "/data/lake"),
        (("iceberg", "iceberg"), "iceberg://catalog:5432/lake/default/lake.clicks"),
    ],
)
def test_sinks_into_one_table_are_refused(kinds: tuple[str, str], location: str) -> None:
    writes = tuple(
        SinkSettings(name=name, kind=kind, location=location) for name, kind in zip("ab", kinds, strict=True)
    )
    with pytest.raises(
        ConfigurationError, match=r"^sink 'a' of field 'writes' and sink 'b' of .* have the same location"
    ):
        replace(SETTINGS, writes=writes, landing_path="/landing").check()


@pytest.mark.parametrize("other", ["/data/clicks2", "s3://data/clicks", "/data/clicks/_copy"])
def test_independent_locations_are_accepted(other: str) -> None:
    replace(SETTINGS, writes=beside_main(other)).check()


def test_folder_ignored_by_dataset_readers_may_hold_another_sink() -> None:
    changed(SETTINGS, dead_letter_path="/data/clicks/_dead").check()


def test_dead_letters_are_published_first() -> None:
    settings = changed(SETTINGS, dead_letter_path="/data/dead", writes=beside_main())
    assert [sink.name for sink in settings.all_sinks] == ["dead_letter", "main", "copy"]


@pytest.mark.parametrize(
    "changes",
    [
        {"transform": "m:f"},
        {"computed": {"a": "1"}},
        {"schema": "a INT"},
        {"writes": (parquet("/a", where="true"),)},
        {"writes": beside_main()},
    ],
)
def test_settings_that_inspect_records_prevent_publishing_landed_files(changes: dict[str, Any]) -> None:
    assert SETTINGS.publishes_landed and not replace(SETTINGS, **changes).publishes_landed


@pytest.mark.parametrize("topic", TOPICS.values())
def test_every_topic_value_may_be_a_template(topic: Any) -> None:
    assert tuple(topic().template_fields) == tuple(field.name for field in fields(topic))


def test_tasks_without_a_transform_write_to_the_landing_path_only() -> None:
    assert changed(SETTINGS, transform=None).worker_roots == (SETTINGS.landing_path,)


def test_transform_tasks_write_to_folder_sinks_and_staging_folders() -> None:
    sinks = (
        *beside_main("s3://lake/copy"),
        SinkSettings(name="table", kind="sql", location="postgres://db/lake.clicks", files="/data/rows"),
        SinkSettings(name="ice", kind="iceberg", location="iceberg://lake/clicks"),
    )
    settings = changed(SETTINGS, writes=sinks, transform="a:b", landing_path="/data/clicks/_landing")
    assert settings.worker_roots == ("/data/clicks/_landing", "s3://lake/copy", "/data/rows")
