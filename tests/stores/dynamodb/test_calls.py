"""Transient errors are retried until a deadline; refusals are distinguished from failures; lost responses are found."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import CredentialRetrievalError

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.browsing import Filter, PageRequest
from airflow_provider_coordination.coordination.errors import (
    ConfigurationError,
    PartitionUpdateError,
    StoreUnavailableError,
)
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.stores.dynamodb import DynamoDbStore
from airflow_provider_coordination.stores.dynamodb import store as dynamodb_store
from tests.stores.dynamodb.conftest import MakeStore
from tests.support.aws_wire import AwsWire
from tests.support.partitions import NOW, SOURCE, a_partition, acquisition, keys

pytestmark = pytest.mark.integration


@pytest.fixture
def leased_partition(store: DynamoDbStore) -> Partition:
    """A partition that is leased to me."""
    store.create([a_partition("a")])
    [partition] = store.acquire(acquisition())
    return partition


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("ProvisionedThroughputExceededException", 400),
        ("RequestLimitExceeded", 400),
        ("ThrottlingException", 400),
        ("TransactionConflictException", 400),
        ("InternalServerError", 500),
        ("ServiceUnavailable", 503),
    ],
)
def test_transient_errors_are_retried(
    store: DynamoDbStore, leased_partition: Partition, wire: AwsWire, code: str, status: int
) -> None:
    wire.refuse("UpdateItem", code, times=2, status=status)

    [written] = store.transact(update=[leased_partition.with_progress({"read": 1})])

    assert written == store.get(SOURCE, "a")
    assert wire.counts == {"UpdateItem": 3, "GetItem": 1}


def test_s32_throttling_beyond_the_deadline_is_a_clear_error(make_store: MakeStore, store: DynamoDbStore) -> None:
    """S32: there throttling is retried without limit. We differ: until the deadline, and then say what to do."""
    hurried = make_store(retry_deadline_seconds=0.3)
    AwsWire(hurried.client).refuse("PutItem", "ProvisionedThroughputExceededException", times=1000)

    with pytest.raises(
        StoreUnavailableError, match=r"cannot be used: .*; raise the capacity of the table and its index"
    ):
        hurried.create([a_partition("a")])
    assert store.get(SOURCE, "a") is None


def test_throttled_partition_ends_the_others_too(make_store: MakeStore, store: DynamoDbStore) -> None:
    hurried = make_store(retry_deadline_seconds=0.1)
    wire = AwsWire(hurried.client)
    wire.refuse("PutItem", "ThrottlingException", times=100_000)

    with pytest.raises(StoreUnavailableError):
        hurried.create([a_partition(f"p{n}") for n in range(500)])
    assert wire.counts["PutItem"] < 500


@pytest.mark.parametrize("code", ["ValidationException", "ItemCollectionSizeLimitExceededException"])
def test_s32_permanent_errors_are_not_retried(
    store: DynamoDbStore, leased_partition: Partition, wire: AwsWire, code: str
) -> None:
    wire.refuse("UpdateItem", code)

    with pytest.raises(ConfigurationError, match=f"the wire says {code}"):
        store.transact(update=[leased_partition.given_up(NOW)])
    assert wire.counts == {"UpdateItem": 1}


def test_unreachable_server_is_reported_after_the_deadline() -> None:
    settings = AwsSettings(
        region="eu-west-1", endpoint_url="http://127.0.0.1:9", access_key_id="A", secret_access_key="B"
    )
    store = DynamoDbStore(settings, table="leases", retry_deadline_seconds=0.2)

    with pytest.raises(
        StoreUnavailableError, match=r"dynamodb://leases\?region=eu-west-1&endpoint_url=http://127.0.0.1:9"
    ):
        store.initialize()


def test_failed_credential_fetch_is_retried(store: DynamoDbStore) -> None:
    failures = [CredentialRetrievalError(provider="the machine's role", error_msg="timed out")] * 2

    def fail(**_: Any) -> None:
        if failures:
            raise failures.pop()

    store.client.meta.events.register("before-sign.dynamodb", fail)

    assert store.create([a_partition("a")]) == ["a"]


def cancelled(*codes: str) -> dict[str, Any]:
    return {"CancellationReasons": [{"Code": code, "Message": f"because of {code}"} for code in codes]}


@pytest.mark.parametrize("code", ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"])
def test_conflicting_transaction_is_retried(
    store: DynamoDbStore, leased_partition: Partition, wire: AwsWire, code: str
) -> None:
    wire.refuse("TransactWriteItems", "TransactionCanceledException", times=2, **cancelled("None", code))

    store.transact(update=[leased_partition.completed(NOW)], create=[a_partition("child")])

    assert wire.counts == {"TransactWriteItems": 3}
    assert store.count_by_status(SOURCE)[PartitionStatus.COMPLETED] == 1


def test_refused_transaction_names_the_reason(store: DynamoDbStore, leased_partition: Partition, wire: AwsWire) -> None:
    wire.refuse("TransactWriteItems", "TransactionCanceledException", **cancelled("None", "ValidationError"))

    with pytest.raises(ConfigurationError, match=r"a transaction was refused: .*because of ValidationError"):
        store.transact(update=[leased_partition.completed(NOW)], create=[a_partition("child")])


def test_refused_update_is_not_retried(store: DynamoDbStore, leased_partition: Partition, wire: AwsWire) -> None:
    store.transact(update=[leased_partition.given_up(NOW)])
    wire.requests.clear()

    with pytest.raises(PartitionUpdateError, match="no longer holds version 1"):
        store.transact(update=[leased_partition.completed(NOW)])
    assert wire.counts == {"UpdateItem": 1}


def test_transaction_creates_absent_items_and_skips_existing_ones(
    store: DynamoDbStore, leased_partition: Partition, wire: AwsWire
) -> None:
    store.create([a_partition("child-1", first=True)])
    children = [a_partition(f"child-{n}", first=False) for n in (1, 2, 1)]
    wire.requests.clear()

    store.transact(update=[leased_partition.completed(NOW)], create=[*children, a_partition("a")])

    assert wire.counts == {"TransactWriteItems": 2}
    assert store.get(SOURCE, "child-1") == a_partition("child-1", first=True)
    assert store.get(SOURCE, "child-2") == a_partition("child-2", first=False)


def test_update_with_existing_creations_is_written_alone(
    store: DynamoDbStore, leased_partition: Partition, wire: AwsWire
) -> None:
    store.create([a_partition("child")])
    wire.requests.clear()

    store.transact(update=[leased_partition.completed(NOW)], create=[a_partition("child")])

    assert wire.counts == {"TransactWriteItems": 1, "UpdateItem": 1}


def test_partition_cannot_be_updated_twice_in_a_transaction(store: DynamoDbStore, leased_partition: Partition) -> None:
    for update, unchanged in (
        ([leased_partition, leased_partition], []),
        ([leased_partition], [leased_partition.written()]),
    ):
        with pytest.raises(PartitionUpdateError):
            store.transact(update=update, unchanged=unchanged)
    assert store.transact(update=[leased_partition], unchanged=[leased_partition]) == [leased_partition.written()]


def test_oversized_transaction_is_reported_and_writes_nothing(
    store: DynamoDbStore, leased_partition: Partition
) -> None:
    with pytest.raises(ConfigurationError, match="a transaction has 101 partitions; the limit of DynamoDB is 100"):
        store.transact(update=[leased_partition.completed(NOW)], create=[a_partition(f"c{n}") for n in range(100)])
    assert store.get(SOURCE, "a") == leased_partition
    store.transact(update=[leased_partition.completed(NOW)], create=[a_partition(f"c{n}") for n in range(99)])


# Answers that were lost


def test_acquisition_with_a_lost_response_is_found(store: DynamoDbStore, wire: AwsWire) -> None:
    store.create([a_partition("a"), a_partition("b", age_seconds=1)])
    wire.lose_the_answer("UpdateItem")

    acquired = store.acquire(acquisition(2))

    assert keys(acquired) == ["b", "a"]
    assert acquired == [store.get(SOURCE, key) for key in ("b", "a")]
    assert [p.version for p in acquired] == [1, 1]


def test_acquisition_by_another_owner_is_no_lost_response(
    store: DynamoDbStore, other: DynamoDbStore, wire: AwsWire
) -> None:
    store.create([a_partition("a")])
    wire.refuse(
        "UpdateItem", "InternalServerError", status=500, after=lambda: other.acquire(acquisition(owner="other"))
    )

    assert store.acquire(acquisition()) == []


@pytest.mark.parametrize("creations", [[], [a_partition("child")]])
def test_update_with_a_lost_response_is_found(
    store: DynamoDbStore, leased_partition: Partition, wire: AwsWire, creations: list[Partition]
) -> None:
    wire.lose_the_answer("TransactWriteItems" if creations else "UpdateItem")

    [written] = store.transact(update=[leased_partition.with_progress({"read": 1})], create=creations)

    assert written == store.get(SOURCE, "a")
    assert written.version == leased_partition.version + 1


def test_transaction_with_a_lost_response_outlives_its_token(
    store: DynamoDbStore, other: DynamoDbStore, leased_partition: Partition, wire: AwsWire
) -> None:
    """DynamoDB remembers the token for ten minutes; what is stored decides afterwards."""
    change: dict[str, Any] = {"update": [leased_partition.completed(NOW)], "create": [a_partition("child")]}
    wire.refuse("TransactWriteItems", "InternalServerError", status=500, after=lambda: other.transact(**change))

    assert store.transact(**change) == [store.get(SOURCE, "a")]


def test_same_change_by_another_is_no_lost_response(
    store: DynamoDbStore, other: DynamoDbStore, leased_partition: Partition
) -> None:
    other.transact(update=[leased_partition.given_up(NOW)])

    with pytest.raises(PartitionUpdateError):
        store.transact(update=[leased_partition.given_up(NOW)])


def test_deletion_with_a_lost_response_is_found(
    store: DynamoDbStore, leased_partition: Partition, wire: AwsWire
) -> None:
    wire.lose_the_answer("DeleteItem")

    store.delete(leased_partition)

    assert wire.counts == {"DeleteItem": 2}
    with pytest.raises(PartitionUpdateError):
        store.delete(leased_partition)


def test_creation_with_a_lost_response_counts_as_created(store: DynamoDbStore, wire: AwsWire) -> None:
    wire.lose_the_answer("PutItem", times=2)

    assert sorted(store.create([a_partition("a"), a_partition("b")])) == ["a", "b"]


def test_failure_beyond_the_deadline_leaves_the_result_open(make_store: MakeStore, store: DynamoDbStore) -> None:
    store.create([a_partition("a")])
    hurried = make_store(retry_deadline_seconds=0.2)
    wire = AwsWire(hurried.client)
    wire.lose_the_answer("UpdateItem")
    wire.refuse("UpdateItem", "InternalServerError", status=500, times=1000)

    with pytest.raises(StoreUnavailableError):
        hurried.acquire(acquisition())
    stored = store.get(SOURCE, "a")
    assert stored is not None and stored.owner == "me"


def test_partitions_acquired_before_a_failure_are_returned(
    make_store: MakeStore, store: DynamoDbStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.create([a_partition("a"), a_partition("b", age_seconds=1)])
    hurried = make_store(retry_deadline_seconds=0.2)
    wire = AwsWire(hurried.client)
    wire.before("UpdateItem", lambda: wire.refuse("UpdateItem", "ThrottlingException", times=1000))

    assert keys(hurried.acquire(acquisition())) == ["b"]
    assert "1 partitions were acquired before that" in caplog.text


def test_renewal_survives_its_lost_response(store: DynamoDbStore, leased_partition: Partition, wire: AwsWire) -> None:
    wire.lose_the_answer("UpdateItem", times=2)

    [renewed] = store.transact(update=[leased_partition.renewed(NOW + timedelta(minutes=5))])
    [again] = store.transact(update=[renewed.renewed(NOW + timedelta(minutes=9))])

    assert again == store.get(SOURCE, "a")


# Many keys at once


def left_unprocessed(dynamodb_table: str, *keys: str) -> dict[str, Any]:
    """A response that processed none of these keys."""
    wanted = [{"sourceIdentifier": {"S": SOURCE}, "sourcePartitionKey": {"S": key}} for key in keys]
    request = {
        "Keys": wanted,
        "ConsistentRead": True,
        "ProjectionExpression": "#attribute",
        "ExpressionAttributeNames": {"#attribute": "sourcePartitionKey"},
    }
    return {"Responses": {dynamodb_table: []}, "UnprocessedKeys": {dynamodb_table: request}}


def test_keys_are_looked_up_in_hundreds(store: DynamoDbStore, wire: AwsWire) -> None:
    store.create([a_partition("p001")])
    assert store.existing_keys(SOURCE, [f"p{n:03}" for n in range(250)] * 2) == {"p001"}
    assert wire.counts["BatchGetItem"] == 3


def test_unprocessed_keys_are_requested_again(store: DynamoDbStore, wire: AwsWire, dynamodb_table: str) -> None:
    store.create([a_partition("a"), a_partition("b")])
    wire.answer("BatchGetItem", left_unprocessed(dynamodb_table, "a", "b"), times=2)
    assert store.existing_keys(SOURCE, ["a", "b", "c"]) == {"a", "b"}
    assert wire.counts["BatchGetItem"] == 3


def test_permanently_unprocessed_keys_are_a_clear_error(make_store: MakeStore, dynamodb_table: str) -> None:
    hurried = make_store(retry_deadline_seconds=0.2)
    hurried.initialize()
    AwsWire(hurried.client).answer("BatchGetItem", left_unprocessed(dynamodb_table, "a"), times=1000)
    with pytest.raises(StoreUnavailableError, match="1 keys were left unprocessed; raise the capacity"):
        hurried.existing_keys(SOURCE, ["a"])


@pytest.mark.parametrize("bounds", [{"BROWSE_SECONDS": -1.0}, {"BROWSE_READ_UNITS": 0.5}], ids=["time", "units"])
def test_browse_stops_calling_at_its_limit(
    store: DynamoDbStore, wire: AwsWire, monkeypatch: pytest.MonkeyPatch, bounds: dict[str, float]
) -> None:
    for name, bound in (
        {"BROWSE_PAGE_ITEMS": 4, "BROWSE_SECONDS": 600.0, "BROWSE_READ_UNITS": 1000.0} | bounds
    ).items():
        monkeypatch.setattr(dynamodb_store, name, bound)
    store.create([a_partition(f"p{n}") for n in range(10)])
    looks, place = [], None
    while not looks or place is not None:
        found = store.browse(PageRequest(source_identifier=SOURCE, wanted=Filter(search="9"), after=place))
        looks.append(keys(found.partitions))
        place = found.next
    assert looks == [[], [], ["p9"]]
    assert wire.counts["Query"] == len(looks)
