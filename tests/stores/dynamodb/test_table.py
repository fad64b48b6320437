"""The table and its index are created once, waited for, and refused if they differ from the required ones."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError, StoreUnavailableError
from airflow_provider_coordination.stores.dynamodb import DynamoDbStore, table
from airflow_provider_coordination.stores.dynamodb.table import TableOptions
from demo.local_kinesis import REGION
from tests.stores.dynamodb.conftest import MakeStore, RawTable
from tests.support.aws_wire import AwsWire
from tests.support.dynamodb_server import DynamoDbServer
from tests.support.fake_aws import fake_aws
from tests.support.partitions import a_partition
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration

OURS = ("sourceIdentifier", "sourcePartitionKey")
INDEX = ("sourceStatusCombinationKey", "partitionPriority")
ROLE = "arn:aws:iam::123456789012:role/leases"


def create(raw: RawTable, *, key: tuple[str, ...] = OURS, index: Any = INDEX, name: str = "source-status",
           projection: Any = None) -> None:  # fmt: skip
    """Create a table as another program may do."""

    def schema(names: tuple[str, ...]) -> list[dict[str, str]]:
        return [{"AttributeName": n, "KeyType": k} for n, k in zip(names, ("HASH", "RANGE"), strict=False)]

    indexes = [
        {"IndexName": name, "KeySchema": schema(index or ()), "Projection": projection or {"ProjectionType": "ALL"}}
    ]
    raw.client.create_table(
        TableName=raw.name,
        KeySchema=schema(key),
        AttributeDefinitions=[{"AttributeName": n, "AttributeType": "S"} for n in {*key, *(index or ())}],
        BillingMode="PAY_PER_REQUEST",
        **({"GlobalSecondaryIndexes": indexes} if index else {}),
    )


def described(raw: RawTable) -> dict[str, Any]:
    answer: dict[str, Any] = raw.client.describe_table(TableName=raw.name)["Table"]
    return answer


def ttl_of(raw: RawTable) -> dict[str, str]:
    answer: dict[str, str] = raw.client.describe_time_to_live(TableName=raw.name)["TimeToLiveDescription"]
    return answer


def test_table_is_created_with_data_prepper_keys_and_index(make_store: MakeStore, raw: RawTable) -> None:
    make_store().initialize()

    found = described(raw)
    [index] = found["GlobalSecondaryIndexes"]
    assert [k["AttributeName"] for k in found["KeySchema"]] == list(OURS)
    assert (index["IndexName"], [k["AttributeName"] for k in index["KeySchema"]]) == ("source-status", list(INDEX))
    assert index["Projection"] == {"ProjectionType": "ALL"}
    assert found["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    assert ttl_of(raw) == {"TimeToLiveStatus": "DISABLED"}


def test_provisioned_capacity_applies_to_table_and_index(make_store: MakeStore, raw: RawTable) -> None:
    make_store(options=TableOptions(capacity=(3, 4))).initialize()

    found = described(raw)
    for provided in (found["ProvisionedThroughput"], found["GlobalSecondaryIndexes"][0]["ProvisionedThroughput"]):
        assert (provided["ReadCapacityUnits"], provided["WriteCapacityUnits"]) == (3, 4)


def test_existing_table_is_only_described(store: DynamoDbStore, wire: AwsWire) -> None:
    store.initialize()

    assert wire.operations == ["DescribeTable"]


@pytest.mark.parametrize(
    ("existing", "message"),
    [
        (
            {"key": ("sourceIdentifier",)},
            r"the table has the key sourceIdentifier \(HASH, S\) and must have sourceIdentifier \(HASH, S\), "
            r"sourcePartitionKey \(RANGE, S\); give another table",
        ),
        ({"key": ("leaseKey",), "index": None}, r"the table has the key leaseKey \(HASH, S\) and must have"),
        ({"index": None}, r"the table has no index 'source-status', only \[\]; create it with the key source"),
        ({"name": "other"}, r"the table has no index 'source-status', only \['other'\]"),
        ({"index": ("sourceStatusCombinationKey",)}, r"the index 'source-status' has the key .* and must have"),
        ({"projection": {"ProjectionType": "KEYS_ONLY"}}, r"projection KEYS_ONLY and must have .*, projection ALL"),
    ],
)
@pytest.mark.parametrize("skip", [False, True])
def test_table_of_another_form_is_refused_with_the_reason(
    make_store: MakeStore, raw: RawTable, existing: dict[str, Any], message: str, skip: bool
) -> None:
    create(raw, **existing)

    with pytest.raises(ConfigurationError, match=message):
        make_store(options=TableOptions(skip_creation=skip)).initialize()


def test_absent_table_is_reported_if_creation_is_off(make_store: MakeStore, dynamodb: DynamoDbServer) -> None:
    store = make_store(options=TableOptions(skip_creation=True))
    wire = AwsWire(store.client)

    with pytest.raises(ConfigurationError, match="the table does not exist and 'skip_table_creation' is set"):
        store.initialize()
    assert wire.operations == ["DescribeTable"]


def test_vanished_table_is_reported(store: DynamoDbStore, raw: RawTable) -> None:
    raw.client.delete_table(TableName=raw.name)

    with pytest.raises(ConfigurationError, match="the table does not exist; create it, or check 'table', 'region'"):
        store.create([a_partition("a")])


def test_invalid_table_name_is_reported_at_once() -> None:
    with pytest.raises(ConfigurationError, match=r"store 'dynamodb': table 'my table' is not usable: give 3 to 255"):
        DynamoDbStore(AwsSettings(region="eu-west-1"), table="my table")


# Waiting


def test_s32_table_under_creation_elsewhere_is_awaited(
    make_store: MakeStore, raw: RawTable, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """S32: create gets ResourceInUse; continue and wait."""
    monkeypatch.setattr(table, "POLL_SECONDS", 0.01)
    caplog.set_level(logging.INFO)
    store = make_store()
    wire = AwsWire(store.client)
    wire.before("CreateTable", lambda: create(raw))
    wire.before("DescribeTable", lambda: None)
    wire.refuse("DescribeTable", "ResourceNotFoundException")
    wire.answer("DescribeTable", {"Table": {"TableStatus": "CREATING"}})
    index = {"IndexName": "source-status", "IndexStatus": "CREATING"}
    wire.answer("DescribeTable", {"Table": {"TableStatus": "ACTIVE", "GlobalSecondaryIndexes": [index]}})

    store.initialize()

    assert wire.operations == ["DescribeTable", "CreateTable", *["DescribeTable"] * 4]
    assert "another process is creating the table" in caplog.text
    for state in ("the table does not exist yet", "the table is CREATING", "the index source-status is CREATING"):
        assert f"waiting for 0 s, {state}" in caplog.text


def test_table_stuck_in_creation_is_reported_after_the_wait(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "POLL_SECONDS", 0.01)
    store = make_store(options=TableOptions(wait_seconds=0.05))
    AwsWire(store.client).answer("DescribeTable", {"Table": {"TableStatus": "CREATING"}}, times=1000)

    with pytest.raises(StoreUnavailableError, match="after 0 s of waiting, the table is CREATING; check it in AWS"):
        store.initialize()


def test_table_under_deletion_is_not_awaited(make_store: MakeStore) -> None:
    store = make_store()
    AwsWire(store.client).answer("DescribeTable", {"Table": {"TableStatus": "DELETING"}})

    with pytest.raises(StoreUnavailableError, match="the table is DELETING"):
        store.initialize()


def test_processes_may_initialize_an_absent_table_concurrently(dynamodb: DynamoDbServer, raw: RawTable) -> None:
    code = (
        "import sys; from airflow_provider_coordination.stores import *; "
        "open_store(StoreSettings.from_url(sys.argv[1])).initialize()"
    )
    url = f"dynamodb://{raw.name}?region={REGION}&endpoint_url={dynamodb.endpoint_url}"
    environment = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}
    processes = [
        subprocess.Popen([sys.executable, "-c", code, url], stderr=subprocess.PIPE, text=True, env=environment)
        for _ in range(4)
    ]

    assert [process.communicate(timeout=PATIENCE_SECONDS)[1] for process in processes] == [""] * 4
    assert described(raw)["TableStatus"] == "ACTIVE"


# TTL


def test_ttl_can_be_enabled_repeatedly(make_store: MakeStore, raw: RawTable) -> None:
    make_store(ttl_seconds=60).initialize()
    again = make_store(ttl_seconds=60)
    wire = AwsWire(again.client)
    again.initialize()

    assert ttl_of(raw) == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expirationTime"}
    assert "UpdateTimeToLive" not in wire.operations


def test_ttl_enabled_concurrently_is_no_error(make_store: MakeStore, raw: RawTable) -> None:
    store = make_store(ttl_seconds=60)
    specification = {"Enabled": True, "AttributeName": "expirationTime"}
    AwsWire(store.client).before(
        "UpdateTimeToLive",
        lambda: raw.client.update_time_to_live(TableName=raw.name, TimeToLiveSpecification=specification),
    )

    store.initialize()

    assert ttl_of(raw)["TimeToLiveStatus"] == "ENABLED"


def test_ttl_failure_is_reported(make_store: MakeStore) -> None:
    store = make_store(ttl_seconds=60)
    AwsWire(store.client).refuse("UpdateTimeToLive", "ValidationException")

    with pytest.raises(ConfigurationError, match=r"TTL cannot be enabled: .*; try again in an hour, or remove 'ttl'"):
        store.initialize()


@pytest.mark.parametrize("skip", [False, True])
def test_table_expiring_by_another_attribute_is_refused(make_store: MakeStore, raw: RawTable, skip: bool) -> None:
    create(raw)
    specification = {"Enabled": True, "AttributeName": "expires"}
    raw.client.update_time_to_live(TableName=raw.name, TimeToLiveSpecification=specification)

    with pytest.raises(ConfigurationError, match="the table's TTL attribute is 'expires' and must be 'expirationTime'"):
        make_store(ttl_seconds=60, options=TableOptions(skip_creation=skip)).initialize()


def test_s32_disabled_ttl_is_an_error_if_creation_is_off(make_store: MakeStore, raw: RawTable) -> None:
    """S32: skip_table_creation and ttl set, TTL DISABLED: an error at the start, no create, no change of TTL."""
    create(raw)
    store = make_store(ttl_seconds=60, options=TableOptions(skip_creation=True))
    wire = AwsWire(store.client)

    with pytest.raises(ConfigurationError, match=r"TTL is disabled.*enable TTL on the attribute expirationTime, or"):
        store.initialize()
    assert wire.operations == ["DescribeTable", "DescribeTimeToLive"]


@pytest.mark.parametrize("status", ["ENABLED", "ENABLING"])
def test_enabled_or_enabling_ttl_suffices_if_creation_is_off(make_store: MakeStore, raw: RawTable, status: str) -> None:
    create(raw)
    store = make_store(ttl_seconds=60, options=TableOptions(skip_creation=True))
    description = {"TimeToLiveStatus": status, "AttributeName": "expirationTime"}
    AwsWire(store.client).answer("DescribeTimeToLive", {"TimeToLiveDescription": description})

    store.initialize()


# Who asks


def test_unassumable_role_is_reported_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_aws() as aws:
        aws.denies = True
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", aws.url)
        settings = AwsSettings(
            region="eu-west-1",
            endpoint_url=aws.url,
            role_arn=ROLE,
            external_id="ours",
            access_key_id="AKIA",
            secret_access_key="hush",
        )

        with pytest.raises(ConfigurationError, match=f"the role '{ROLE}' cannot be assumed: .*trust policy") as error:
            DynamoDbStore(settings, table="leases").initialize()
    assert "hush" not in str(error.value)


def test_calls_are_signed_as_the_role(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_aws() as aws:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", aws.url)
        settings = AwsSettings(
            region="eu-west-1", endpoint_url=aws.url, role_arn=ROLE, external_id="ours",
            access_key_id="AKIA", secret_access_key="hush",
        )  # fmt: skip
        store = DynamoDbStore(settings, table="leases", options=TableOptions(skip_creation=True))

        with pytest.raises(ConfigurationError, match="the table does not exist"):
            store.initialize()
        assert (aws.assumed[0]["RoleArn"], aws.assumed[0]["ExternalId"]) == ([ROLE], ["ours"])
        assert "Credential=ROLE1/" in aws.authorizations[0]


def test_missing_credentials_are_reported_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(ConfigurationError, match="give an AWS connection in 'aws_conn_id', or credentials"):
        DynamoDbStore(AwsSettings(region="eu-west-1"), table="leases").initialize()


def test_denied_action_is_reported_by_name(store: DynamoDbStore, wire: AwsWire) -> None:
    wire.refuse("PutItem", "AccessDeniedException")

    with pytest.raises(
        ConfigurationError, match=r"access refused: .*; allow dynamodb:PutItem as the policy in docs/dyn"
    ):
        store.create([a_partition("a")])
    assert wire.counts == {"PutItem": 1}


PROTECTED = TableOptions(point_in_time_recovery=True, deletion_protection=True, tags={"team": "web", "stage": "live"})


def recovery_of(raw: RawTable) -> str:
    described = raw.client.describe_continuous_backups(TableName=raw.name)["ContinuousBackupsDescription"]
    status: str = described["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"]
    return status


def tags_of(raw: RawTable) -> dict[str, str]:
    tags = raw.client.list_tags_of_resource(ResourceArn=described(raw)["TableArn"])["Tags"]
    return {tag["Key"]: tag["Value"] for tag in tags}


@pytest.fixture
def deletable(raw: RawTable) -> Iterator[None]:
    """Lets the fixture of the table delete it."""
    yield
    raw.client.update_table(TableName=raw.name, DeletionProtectionEnabled=False)


@pytest.mark.usefixtures("deletable")
def test_new_table_is_protected_and_tagged(
    make_store: MakeStore, raw: RawTable, caplog: pytest.LogCaptureFixture
) -> None:
    make_store(options=PROTECTED).initialize()

    assert (recovery_of(raw), described(raw)["DeletionProtectionEnabled"]) == ("ENABLED", True)
    assert tags_of(raw) == {"team": "web", "stage": "live"}

    again = make_store(options=PROTECTED)
    wire = AwsWire(again.client)
    again.initialize()
    assert wire.operations == ["DescribeTable", "DescribeContinuousBackups", "ListTagsOfResource"]
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_differing_table_is_reported_and_not_changed(
    make_store: MakeStore, raw: RawTable, caplog: pytest.LogCaptureFixture
) -> None:
    make_store(options=TableOptions(tags={"team": "api"})).initialize()

    make_store(options=PROTECTED).initialize()

    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [warning.partition(": ")[2].partition(":")[0] for warning in warnings] == [
        "'deletion_protection' is set and the table has none",
        "'point_in_time_recovery' is set and the table has none",
        "the table does not have stage=live, team=web of 'tags'",
    ]
    assert all("enable it in AWS" in warning or "tag it in AWS" in warning for warning in warnings)
    assert all(warning.endswith("; the table is not changed") for warning in warnings)
    assert (recovery_of(raw), described(raw)["DeletionProtectionEnabled"]) == ("DISABLED", False)
    assert tags_of(raw) == {"team": "api"}


def test_table_of_another_process_is_compared(make_store: MakeStore, raw: RawTable, caplog: Any) -> None:
    """The other process created it between our look and our call."""
    store = make_store(options=TableOptions(deletion_protection=True))
    AwsWire(store.client).before("CreateTable", make_store().initialize)

    store.initialize()

    assert "'deletion_protection' is set and the table has none" in caplog.text
    assert described(raw)["DeletionProtectionEnabled"] is False
