"""The connection type `coordination`: read, checked, tested."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import BaseHook

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.held_leases import DEFAULT_OWNERSHIP_TIMEOUT, DEFAULT_SAFETY_MARGIN
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.stores import StoreSettings
from airflow_provider_coordination.stores.kinds.dynamodb import DynamoDbSettings
from tests.airflow.conftest import SECRET
from tests.support.dynamodb_server import DynamoDbServer
from tests.support.waiting import PATIENCE_SECONDS


def settings_of(connect: Any, conn_type: str = "coordination", **fields: Any) -> Any:
    connect("c", conn_type, **fields)
    return CoordinationHook("c").settings


def test_url_is_enough(connect: Any, store_url: str) -> None:
    settings = settings_of(connect, extra={"url": store_url})
    assert (settings.store.kind, settings.store.own.url) == ("sql", store_url)
    assert (settings.ownership_timeout, settings.safety_margin) == (DEFAULT_OWNERSHIP_TIMEOUT, DEFAULT_SAFETY_MARGIN)


def test_every_field_is_read(connect: Any, store_url: str) -> None:
    extra = {
        "store": "sql",
        "url": store_url,
        "table": "leases",
        "region": "eu-west-1",
        "prefix": "prod",
        "ownership_timeout": 120,
        "safety_margin": "2.5",
        "history_days": 0.5,
    }
    settings = settings_of(connect, extra=extra)
    assert (settings.store.table, settings.region, settings.prefix) == ("leases", "eu-west-1", "prod")
    assert settings.ownership_timeout == timedelta(seconds=120)
    assert settings.safety_margin == timedelta(seconds=2.5)
    assert settings.store.history_days == 0.5
    dynamodb = {"store": "dynamodb", "region": "eu-west-1", "history_days": "0"}
    assert settings_of(connect, extra=dynamodb).store.history_days == 0


def test_empty_form_field_counts_as_not_given(connect: Any, store_url: str) -> None:
    extra = {"url": store_url, "table": "", "prefix": None, "ownership_timeout": None, "region": ""}
    settings = settings_of(connect, extra=extra)
    assert (settings.store.table, settings.prefix, settings.region) == ("coordination_partition", None, None)


def test_login_and_password_are_in_the_url_not_the_repr(connect: Any) -> None:
    url = "postgresql://host:5433/db?sslmode=require"
    settings = settings_of(connect, login="ann", password=f"{SECRET}@/:", extra={"url": url})
    assert settings.store.own.url == f"postgresql://ann:{SECRET}%40%2F%3A@host:5433/db?sslmode=require"
    assert SECRET not in repr(settings)


def test_every_field_of_dynamodb_is_read(connect: Any) -> None:
    extra = {
        "store": "dynamodb",
        "table": "leases",
        "region": "eu-west-1",
        "endpoint_url": "http://here:1",
        "sts_role_arn": "arn:aws:iam::123456789012:role/leases",
        "sts_external_id": "ours",
        "skip_table_creation": True,
        "ttl": "86400",
        "provisioned_read_capacity_units": 5,
        "provisioned_write_capacity_units": 6,
        "point_in_time_recovery": True,
        "deletion_protection": "true",
        "tags": '{"team": "web"}',
    }
    assert settings_of(connect, extra=extra).store == StoreSettings.of(
        "dynamodb",
        DynamoDbSettings(
            table="leases",
            aws=AwsSettings(
                region="eu-west-1",
                endpoint_url="http://here:1",
                role_arn="arn:aws:iam::123456789012:role/leases",
                external_id="ours",
            ),
            skip_table_creation=True,
            ttl_seconds=86400,
            read_capacity_units=5,
            write_capacity_units=6,
            point_in_time_recovery=True,
            deletion_protection=True,
            tags={"team": "web"},
        ),
    )


@pytest.mark.parametrize(
    ("ttl", "seconds"),
    [("P30D", 2592000), ("PT1H30M", 5400), ("p1dT1S", 86401), ("P2W", 1209600), ("60", 60), (60, 60), (None, None)],
)
def test_ttl_is_a_duration_or_seconds(connect: Any, ttl: Any, seconds: int | None) -> None:
    own = settings_of(connect, extra={"store": "dynamodb", "region": "eu-west-1", "ttl": ttl}).store.own
    assert own.ttl_seconds == seconds


def test_dynamodb_fields_override_the_aws_connection(connect: Any) -> None:
    role = "arn:aws:iam::123456789012:role/of-the-connection"
    aws = {"role_arn": role, "assume_role_kwargs": {"ExternalId": "its"}, "endpoint_url": "http://all:1"}
    connect("a", "aws", login="AKIA", password=SECRET, extra=aws)
    extra = {"store": "dynamodb", "aws_conn_id": "a", "region": "eu-west-1"}
    assert settings_of(connect, extra=extra).store.own.aws == AwsSettings(
        region="eu-west-1",
        endpoint_url="http://all:1",
        role_arn=role,
        external_id="its",
        access_key_id="AKIA",
        secret_access_key=SECRET,
    )
    own = {"sts_role_arn": "arn:aws:iam::123456789012:role/own", "endpoint_url": "http://here:1"}
    settings = settings_of(connect, extra=extra | own).store.own.aws
    assert (settings.role_arn, settings.external_id) == (own["sts_role_arn"], None)
    assert (settings.endpoint_url, settings.secret_access_key) == ("http://here:1", SECRET)


def test_unticked_form_field_counts_as_not_given(connect: Any, store_url: str) -> None:
    assert settings_of(connect, extra={"url": store_url, "skip_table_creation": False}).store.kind == "sql"


@pytest.mark.integration
def test_connection_to_dynamodb_is_tested(connect: Any, dynamodb: DynamoDbServer, dynamodb_table: str) -> None:
    connect("a", "aws", login="test", password=SECRET, extra={"endpoint_url": dynamodb.endpoint_url})
    extra = {"store": "dynamodb", "aws_conn_id": "a", "region": "eu-west-1", "table": dynamodb_table}
    connect("c", "coordination", extra=extra)
    assert CoordinationHook("c").test_connection() == (True, f"The store responds; table '{dynamodb_table}' is ready.")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "connection 'c': store 'sql': field 'url' is missing; give an SQLAlchemy URL"),
        (
            {"extra": "{not json"},
            'connection \'c\': extra is not JSON; give an object such as {"store": "sql", "url": ',
        ),
        ({"extra": "[1]"}, "connection 'c': extra is not a JSON object"),
        ({"extra": {"uri": "x"}}, "connection 'c': unknown field 'uri'; the known fields are store, url, table"),
        (
            {"extra": {"store": "redis", "url": "x://y"}},
            "connection 'c': store 'redis' is not known; the known names are 'dynamodb', 'in_memory', 'sql'. Install",
        ),
        (
            {"extra": {"store": "in_memory"}},
            "connection 'c': field 'store' is 'in_memory', which tasks cannot share",
        ),
        ({"extra": {"url": 7}}, "connection 'c': field 'url' must be text; got 7"),
        (
            {"extra": {"url": "nonsense"}},
            "connection 'c': field 'url' is not an SQLAlchemy URL; give, for example,",
        ),
        (
            {"extra": {"url": "sqlite:///leases.db"}},
            "connection 'c': store 'sql': 'url' contains the relative path 'leases.db', so processes",
        ),
        (
            {"extra": {"url": "sqlite:////x.db", "ownership_timeout": "soon"}},
            "connection 'c': field 'ownership_timeout' must be a number of seconds, such as 60; got 'soon'",
        ),
        (
            {"extra": {"url": "sqlite:////x.db", "safety_margin": -1}},
            "connection 'c': field 'safety_margin' must be a number of seconds, such as 60; got -1",
        ),
        (
            {"extra": {"url": "sqlite:////x.db", "history_days": "a week"}},
            "connection 'c': field 'history_days' must be a number of days, such as 7",
        ),
        (
            {"extra": {"url": "sqlite:////x.db", "history_days": 1000}},
            "connection 'c': store 'sql': field 'history_days' must be a number of days from 0, for no history, to 365",
        ),
        (
            {"extra": {"url": "sqlite:////x.db", "ownership_timeout": True}},
            "connection 'c': field 'ownership_timeout' must be a number of seconds, such as 60; got True",
        ),
        (
            {"extra": {"url": "sqlite:////x.db", "ownership_timeout": 10, "safety_margin": 5}},
            "connection 'c': ownership_timeout 10 s with safety_margin 5 s is not usable",
        ),
        (
            {"extra": {"url": "sqlite:////x.db"}, "login": "ann"},
            "connection 'c': SQLite has no users; leave login and password empty",
        ),
        (
            {"extra": {"url": "sqlite:////x.db", "ttl": 60}},
            "connection 'c': field 'ttl' belongs to the store 'dynamodb'; remove it, or set 'store' to that",
        ),
        (
            {"extra": {"store": "dynamodb", "url": "sqlite:////x.db"}},
            "connection 'c': field 'url' belongs to the store 'sql'; remove it, or set 'store' to that",
        ),
        (
            {"extra": {"store": "dynamodb"}, "login": "AKIA", "password": SECRET},
            "connection 'c': DynamoDB has no login; leave login and password empty, and give a connection",
        ),
        (
            {"extra": {"store": "dynamodb", "sts_role_arn": "reader"}},
            "connection 'c': AWS settings: field 'role_arn' must be an ARN",
        ),
        (
            {"extra": {"store": "dynamodb", "aws_conn_id": "a"}},
            "connection 'c': AWS connection 'a': it is not defined, and no region is known; set region_name",
        ),
        (
            {"extra": {"store": "dynamodb", "ttl": "P1M"}},
            "connection 'c': field 'ttl' must be a duration of at least a second",
        ),
        (
            {"extra": {"store": "dynamodb", "ttl": "PT0.5S"}},
            "connection 'c': field 'ttl' must be a duration of at least a second",
        ),
        (
            {"extra": {"store": "dynamodb", "ttl": 0}},
            "connection 'c': field 'ttl' must be a duration of at least a second",
        ),
        (
            {"extra": {"store": "dynamodb", "region": "r", "tags": {"n": 1}}},
            "connection 'c': field 'tags' must be a JSON object whose values are text; got {'n': 1}",
        ),
        (
            {"extra": {"store": "dynamodb", "region": "r", "tags": "team=web"}},
            "connection 'c': field 'tags' must be a JSON object; got 'team=web'",
        ),
        (
            {"extra": {"store": "dynamodb", "region": "r", "deletion_protection": "maybe"}},
            "connection 'c': field 'deletion_protection' must be true or false; got 'maybe'",
        ),
        (
            {"extra": {"store": "dynamodb", "ttl": 0.5}},
            "connection 'c': field 'ttl' must be a duration of at least a second",
        ),
        (
            {"extra": {"store": "dynamodb", "skip_table_creation": "perhaps"}},
            "connection 'c': field 'skip_table_creation' must be true or false; got 'perhaps'",
        ),
        (
            {"extra": {"store": "dynamodb", "provisioned_read_capacity_units": 5}},
            "connection 'c': field 'provisioned_write_capacity_units' is missing; give it, or remove",
        ),
        ({"conn_type": "postgres"}, "connection 'c' is of type 'postgres'; name one of type 'coordination'"),
    ],
)
def test_wrong_connection_names_the_field_value_and_remedy(connect: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        settings_of(connect, **fields)
    # Airflow 3.1 reads the extra of a variable itself, so there the error is about the variable.
    variable = message.replace("extra is", "the environment variable AIRFLOW_CONN_C has an 'extra' that is")
    assert str(error.value).startswith((message, variable.partition(";")[0]))


def test_undefined_connection_is_reported() -> None:
    with pytest.raises(ConfigurationError, match="connection 'absent' is not defined; create it"):
        _ = CoordinationHook("absent").settings


def test_view_needs_no_owner(coordination: SourceCoordinator) -> None:
    coordination.create_partitions({"p": {}})
    view = CoordinationHook().view(coordination.source)
    assert view.is_available() and [partition.partition_key for partition in view.partitions()] == ["p"]
    view.store.close()


def test_coordinator_is_ready_to_use(coordination: SourceCoordinator) -> None:
    coordinator = CoordinationHook().coordinator("clicks", "me")
    assert coordinator.create_partitions({"p": {}}) == ["p"]
    assert [p.partition_key for p in coordination.view.partitions()] == ["p"]


def test_unusable_source_name_is_reported(coordination: SourceCoordinator) -> None:
    with pytest.raises(ConfigurationError, match=r"source 'a\|b' is not usable"):
        CoordinationHook().coordinator("a|b", "me")


def test_connection_test_queries_the_store(coordination: SourceCoordinator) -> None:
    works, said = CoordinationHook().test_connection()
    assert works
    assert said == "The store responds; table 'coordination_partition' is ready."


def test_connection_test_explains_a_wrong_connection(connect: Any) -> None:
    connect("c", "coordination", extra={"url": "oracle://host/db"})
    assert CoordinationHook("c").test_connection() == (
        False,
        "store 'sql': database 'oracle' is not supported; use sqlite, postgresql, mysql or mariadb",
    )


@pytest.mark.integration
def test_unreachable_database_fails_the_test_without_its_password(connect: Any) -> None:
    connect("c", "coordination", login="u", password=SECRET, extra={"url": "postgresql://127.0.0.1:9/db"})
    works, said = CoordinationHook("c").test_connection()
    assert not works
    assert "127.0.0.1:9/db" in said
    assert SECRET not in said


def test_missing_folder_is_reported(connect: Any) -> None:
    connect("c", "coordination", extra=json.dumps({"url": "sqlite:////no/such/folder/c.db"}))
    with pytest.raises(ConfigurationError, match=r"folder '/no/such/folder' of the SQLite file .* does not exist"):
        CoordinationHook("c").coordinator("clicks", "me")


def test_slow_connection_lookup_blocks_no_other_hook(
    connect: Any, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect("coordination_default", "coordination", extra={"url": store_url})
    look_up, both = BaseHook.get_connection, threading.Barrier(2, timeout=PATIENCE_SECONDS)

    def slow(conn_id: str) -> Any:
        both.wait()
        return look_up(conn_id)

    monkeypatch.setattr(BaseHook, "get_connection", slow)
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda hook: hook.settings, [CoordinationHook(), CoordinationHook()]))
    assert found[0] == found[1]
