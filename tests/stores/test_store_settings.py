"""Settings of stores are validated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError, StoreUnavailableError
from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.stores import StoreSettings, open_store
from airflow_provider_coordination.stores.history_recording import RecordingStore
from airflow_provider_coordination.stores.kinds.dynamodb import DynamoDbSettings
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from airflow_provider_coordination.stores.kinds.sql import SqlSettings


def test_unknown_store_kind_names_the_known_ones() -> None:
    with pytest.raises(
        ConfigurationError, match="store 'redis' is not known; the known names are 'dynamodb', 'in_memory', 'sql'"
    ):
        open_store(StoreSettings(kind="redis"))


def test_in_memory_store_needs_no_settings() -> None:
    opened = open_store(StoreSettings(kind="in_memory"))
    assert isinstance(opened, RecordingStore)
    assert isinstance(opened.inner, InMemoryStore)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (StoreSettings(), "field 'url' is missing"),
        (StoreSettings.from_url("not a url"), "not an SQLAlchemy URL"),
        (StoreSettings.from_url("oracle://host/db"), "database 'oracle' is not supported"),
        (StoreSettings.from_url("sqlite://"), "SQLite needs a file"),
        (StoreSettings.from_url("sqlite:///file:/x.db?mode=memory&uri=true"), "SQLite needs a file"),
        (
            StoreSettings.from_url("sqlite:///leases.db"),
            "'url' contains the relative path 'leases.db', so processes .* would coordinate through other files; give "
            "the absolute path: sqlite:////path/to/leases.db, with four slashes",
        ),
        (
            StoreSettings.from_url("sqlite:///var/lib/leases.db"),
            "give the absolute path: sqlite:////var/lib/leases.db, with four slashes",
        ),
        (
            StoreSettings.from_url("sqlite:///../leases.db"),
            "give the absolute path: sqlite:////path/to/leases.db, with four slashes",
        ),
        (StoreSettings.from_url("sqlite:///file:leases.db?uri=true"), "contains the relative path 'leases.db'"),
        (
            StoreSettings.from_url("sqlite://var/lib/leases.db"),
            "contains a server, 'var', .* sqlite:////var/lib/leases.db, with four slashes",
        ),
        (
            StoreSettings.from_url("sqlite:////nowhere/to/be/leases.db"),
            "folder '/nowhere/to/be' of the SQLite file '/nowhere/to/be/leases.db' does not exist on this machine; "
            "create it, or correct the path in 'url'",
        ),
        (StoreSettings.from_url("sqlite:////tmp"), "'/tmp' is a folder; give a file in it"),
        (StoreSettings.from_url("sqlite:////x.db", "a; drop table b"), "table 'a; drop table b' is not usable"),
        (StoreSettings(kind="in_memory", history_days=-1), "history_days' must be a number of days from 0, for"),
        (StoreSettings(kind="in_memory", history_days=366), "to 365; got 366"),
        (StoreSettings(kind="in_memory", history_days=float("nan")), "'history_days' must be .* got nan"),
    ],
)
def test_invalid_settings_are_refused_before_connecting(settings: StoreSettings, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        open_store(settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            StoreSettings(settings={"url": "sqlite:////x.db", "aws": {"region": "eu-west-1"}}),
            "store 'sql': unknown field 'aws'; the known fields are url, table",
        ),
        (
            StoreSettings(kind="in_memory", settings={"ttl_seconds": 60}),
            "store 'in_memory': unknown field 'ttl_seconds'; the known fields are ",
        ),
        (
            StoreSettings(settings={"url": 7}),
            "store 'sql': field 'url' must be text or null; got int, which may be a secret",
        ),
        (
            StoreSettings.of("dynamodb", DynamoDbSettings(ttl_seconds=0)),
            "field 'ttl_seconds' must be a whole number, at least 1; got 0",
        ),
        (
            StoreSettings.of("dynamodb", DynamoDbSettings(tags={"aws:team": "web"})),
            "field 'tags' has the tag 'aws:team' with the value 'web'; give names of 1 to 128 characters that do not",
        ),
        (
            StoreSettings.of("dynamodb", DynamoDbSettings(tags={str(n): "" for n in range(51)})),
            "field 'tags' has 51 tags; give at most 50",
        ),
        (
            StoreSettings.of("dynamodb", DynamoDbSettings(read_capacity_units=True, write_capacity_units=1)),
            "field 'read_capacity_units' must be a whole number or null; got True",
        ),
        (
            StoreSettings.of("dynamodb", DynamoDbSettings(read_capacity_units=1)),
            "field 'write_capacity_units' is missing; give both capacities, or neither for on-demand",
        ),
        (
            StoreSettings.of("dynamodb", DynamoDbSettings(table="a b")),
            "table 'a b' is not usable: give 3 to 255 letters",
        ),
    ],
)
def test_foreign_or_incomplete_field_is_refused(settings: StoreSettings, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        open_store(settings)


@pytest.mark.parametrize(
    ("url", "settings"),
    [
        ("sqlite:////x.db", StoreSettings.of("sql", SqlSettings(url="sqlite:////x.db"))),
        ("dynamodb://leases", StoreSettings.of("dynamodb", DynamoDbSettings(table="leases"))),
        (
            "dynamodb://My.leases_1?region=eu-west-1&endpoint_url=http://127.0.0.1:8000"
            "&role_arn=arn:aws:iam::123456789012:role/leases&external_id=a%26b",
            StoreSettings.of(
                "dynamodb",
                DynamoDbSettings(
                    table="My.leases_1",
                    aws=AwsSettings(
                        region="eu-west-1",
                        endpoint_url="http://127.0.0.1:8000",
                        role_arn="arn:aws:iam::123456789012:role/leases",
                        external_id="a&b",
                    ),
                ),
            ),
        ),
        (
            "dynamodb://?region=eu-west-1",
            StoreSettings.of("dynamodb", DynamoDbSettings(aws=AwsSettings(region="eu-west-1"))),
        ),
    ],
)
def test_url_names_a_store(url: str, settings: StoreSettings) -> None:
    # How long others keep the history is not known.
    assert StoreSettings.from_url(url) == replace(settings, history_days=365)


def test_url_takes_its_table_from_a_separate_argument() -> None:
    assert StoreSettings.from_url("sqlite:////x.db", "leases").table == "leases"
    assert StoreSettings.from_url("dynamodb://?region=r", "leases").table == "leases"
    assert StoreSettings.from_url("dynamodb://leases", "leases").table == "leases"
    with pytest.raises(ConfigurationError, match="contains another table than 'other'; give only one of them"):
        StoreSettings.from_url("dynamodb://leases", "other")


@pytest.mark.parametrize("url", ["dynamodb:leases", "dynamodb://leases/x", "dynamodb://leases?regoin=eu-west-1"])
def test_invalid_dynamodb_url_is_reported_with_an_example(url: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"is not usable: give dynamodb://<table>.*for example dynamodb://coord"
    ):
        StoreSettings.from_url(url)


def test_dynamodb_settings_survive_json_and_hide_secrets() -> None:
    aws = AwsSettings(region="eu-west-1", access_key_id="AKIA", secret_access_key="hush")
    settings = StoreSettings.of(
        "dynamodb",
        DynamoDbSettings(
            aws=aws,
            skip_table_creation=True,
            ttl_seconds=60,
            read_capacity_units=1,
            write_capacity_units=2,
        ),
    )
    assert read_settings(StoreSettings, "store settings", write_settings(settings)) == settings
    assert "hush" not in repr(settings)


def test_dynamodb_store_without_a_region_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigurationError, match="give a region such as 'eu-west-1'"):
        open_store(StoreSettings.of("dynamodb", DynamoDbSettings()))


def test_unknown_field_is_named() -> None:
    with pytest.raises(
        ConfigurationError, match="unknown field 'uri'; the known fields are kind, settings, implementation"
    ):
        read_settings(StoreSettings, "store settings", {"kind": "sql", "uri": "sqlite:////x.db"})


def test_another_table_can_be_chosen() -> None:
    settings = StoreSettings.from_url("sqlite:////x.db", "leases").with_table("others")
    assert (settings.own.url, settings.table) == ("sqlite:////x.db", "others")
    with pytest.raises(ConfigurationError, match="store 'in_memory' has no table; omit 'others'"):
        StoreSettings(kind="in_memory").with_table("others")


def test_settings_survive_json() -> None:
    settings = StoreSettings.from_url("postgresql://u:secret@h/d", "leases")
    assert read_settings(StoreSettings, "store settings", write_settings(settings)) == settings


def test_url_and_password_stay_out_of_logs() -> None:
    assert "secret" not in repr(StoreSettings.from_url("postgresql://u:secret@h/d"))


def test_file_that_is_no_database_is_reported(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("this is no database, and long enough to look at " * 30)
    with pytest.raises(StoreUnavailableError, match="file is not a database; give another file in 'url'"):
        open_store(StoreSettings.from_url(f"sqlite:///{tmp_path}/x.db")).initialize()


@pytest.mark.integration
def test_unreachable_server_is_reported_without_its_password() -> None:
    from airflow_provider_coordination.stores.sql import SqlStore

    store = SqlStore("postgresql://u:secret@127.0.0.1:9/db", table="t", retry_deadline_seconds=0.2)
    with pytest.raises(
        StoreUnavailableError, match=r"postgresql\+psycopg://u:\*\*\*@127.0.0.1:9/db cannot be used"
    ) as error:
        store.initialize()
    assert "secret" not in str(error.value)
