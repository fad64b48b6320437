"""Pages that msgspec decodes are the pages that botocore parses, and requests are signed as botocore signs them."""

from __future__ import annotations

import base64
import builtins
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.auth import SIGV4_TIMESTAMP, SigV4Auth
from botocore.awsrequest import AWSPreparedRequest, AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_coordination.aws import AwsSettings, aws_client
from airflow_provider_coordination.sources.dynamodb_streams.changes import ChangeRecords, change_decoder
from airflow_provider_coordination.sources.dynamodb_streams.client import StreamsClient, shared_reading_client
from airflow_provider_coordination.sources.items import ItemUnreadableError
from airflow_provider_coordination.sources.kinesis.client import KinesisUnavailableError
from airflow_provider_coordination.sources.kinesis.records import COLUMNS
from tests.support.aws_wire import AwsWire, answer_of

SETTINGS = AwsSettings(
    region="eu-west-1",
    endpoint_url="http://127.0.0.1:1",
    access_key_id="AKIA",
    secret_access_key="hush",
    max_attempts=1,
)
AT = {"ShardIterator": "0 shard-1 arn:aws:dynamodb:eu-west-1:1:table/orders/stream/l i1"}
IMAGE = {"id": {"S": "a"}, "n": {"N": "1.50"}, "b": {"B": "AP8="}, "l": {"L": [{"NULL": True}, {"BS": ["AQ=="]}]}}


def a_record(operation: str = "MODIFY", **changes: Any) -> dict[str, Any]:
    facts = {"ApproximateCreationDateTime": 1767268800, "Keys": {"id": {"S": "a"}}, "SequenceNumber": "100"}
    return {"eventName": operation, "dynamodb": {**facts, "SizeBytes": 9, **changes}}


TTL = {"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"}
PAGES = {
    "images": {"Records": [a_record(NewImage=IMAGE, OldImage=IMAGE)], "NextShardIterator": "i2"},
    "keys": {"Records": [a_record("REMOVE", Keys={"n": {"N": "1"}, "b": {"B": "AQ=="}})], "NextShardIterator": "i2"},
    "expired": {"Records": [{**a_record("REMOVE", OldImage=IMAGE), "userIdentity": TTL}], "NextShardIterator": "i2"},
    "empty": {"Records": [], "NextShardIterator": "i2"},
    "nulls": {"Records": [{**a_record(), "userIdentity": None}], "NextShardIterator": "i2"},
    "fraction": {"Records": [a_record(ApproximateCreationDateTime=1767268800.25)], "NextShardIterator": "i2"},
    "of a later version": {"Records": [{**a_record(New={"a": 1}), "x": [1]}], "NextShardIterator": "i2", "Newer": 1},
}

texts = st.text(st.characters(exclude_categories=("Cs",)))
numbers = st.decimals(allow_nan=False, allow_infinity=False, places=10).map(str) | st.integers().map(str)
values = st.recursive(
    st.builds(lambda held: {"S": held}, texts)
    | st.builds(lambda held: {"N": held}, numbers)
    | st.builds(lambda held: {"B": held}, st.binary())
    | st.builds(lambda held: {"BOOL": held}, st.booleans())
    | st.builds(lambda held: {"NS": held}, st.lists(numbers, min_size=1))
    | st.builds(lambda held: {"BS": held}, st.lists(st.binary(), min_size=1)),
    lambda inner: (
        st.builds(lambda held: {"L": held}, st.lists(inner))
        | st.builds(lambda held: {"M": held}, st.dictionaries(texts, inner))
    ),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def plain() -> StreamsClient:
    return StreamsClient(aws_client(SETTINGS, "dynamodbstreams"))


@pytest.fixture(scope="module")
def fast() -> StreamsClient:
    return shared_reading_client(SETTINGS)


def page_of(client: StreamsClient, answer: dict[str, Any]) -> tuple[list[dict[str, Any]], Any, Any]:
    wire = AwsWire(client)
    wire.answer("GetRecords", answer)
    try:
        page = client.get_records(**AT)
    finally:
        wire.disconnect()
    return page[COLUMNS].changes.to_pylist(), page["NextShardIterator"], page["MillisBehindLatest"]


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_both_parsers_give_the_same_page(plain: StreamsClient, fast: StreamsClient, page: dict[str, Any]) -> None:
    assert page_of(fast, page)[:2] == page_of(plain, page)[:2]


@given(st.dictionaries(texts, values))
def test_every_image_parses_to_the_same_text(image: dict[str, Any]) -> None:
    decode = change_decoder()
    assert decode is not None
    body = json.dumps({"Records": [a_record(NewImage=image)]}, default=lambda held: base64.b64encode(held).decode())
    of_boto3 = a_record(NewImage=image, ApproximateCreationDateTime=datetime(2026, 1, 1, 12, tzinfo=UTC))
    assert decode(body.encode())[COLUMNS].changes == ChangeRecords.of_response([of_boto3]).changes


def test_pages_use_the_fast_path(plain: StreamsClient, fast: StreamsClient) -> None:
    for client, is_fast in ((fast, True), (plain, False)):
        wire = AwsWire(client)
        wire.answer("GetRecords", PAGES["images"])
        assert (COLUMNS in client._streams.get_records(ShardIterator="i1")) is is_fast
        wire.disconnect()


@pytest.mark.parametrize("name", ["fast", "plain"])
def test_response_without_records_is_an_outage(name: str, request: pytest.FixtureRequest) -> None:
    client: StreamsClient = request.getfixturevalue(name)
    with pytest.raises(KinesisUnavailableError, match="it has no 'Records'; check endpoint_url"):
        page_of(client, {"NextShardIterator": "i2"})


def test_unknown_type_of_a_value_is_refused(fast: StreamsClient) -> None:
    with pytest.raises(ItemUnreadableError, match=r"\{'Z': '1'\} is not a typed value of DynamoDB"):
        page_of(fast, {"Records": [a_record(NewImage={"n": {"Z": "1"}})], "NextShardIterator": "i2"})


def test_refusals_have_the_codes_of_kinesis(fast: StreamsClient) -> None:
    wire = AwsWire(fast)
    wire.refuse("GetRecords", "TrimmedDataAccessException")
    with pytest.raises(ClientError, match="ExpiredIteratorException"):
        fast.get_records(**AT)
    wire.disconnect()


def test_request_is_signed_like_botocore(fast: StreamsClient, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[AWSPreparedRequest] = []

    def send(request: AWSPreparedRequest, **_: Any) -> Any:
        sent.append(request)
        return answer_of(request, 200, json.dumps(PAGES["empty"]).encode())

    fast.meta.events.register("before-send.dynamodb-streams.GetRecords", send)
    fast.get_records(**AT)
    fast.meta.events.unregister("before-send.dynamodb-streams.GetRecords", send)

    [request] = sent
    headers = {name.lower(): value for name, value in request.headers.items()}
    assert (headers["x-amz-target"], headers["content-type"]) == (
        "DynamoDBStreams_20120810.GetRecords",
        "application/x-amz-json-1.0",
    )
    again = AWSRequest("POST", request.url, data=request.body)
    for name in ("content-type", "x-amz-target"):
        again.headers[name] = headers[name]
    at = datetime.strptime(headers["x-amz-date"], SIGV4_TIMESTAMP).replace(tzinfo=UTC)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda *_: at, raising=False)
    SigV4Auth(Credentials("AKIA", "hush"), "dynamodb", "eu-west-1").add_auth(again)
    assert headers["authorization"] == again.headers["Authorization"]


@pytest.fixture
def without_msgspec(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def importing(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "msgspec":
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", importing)


@pytest.mark.usefixtures("without_msgspec")
def test_botocore_parses_without_msgspec(plain: StreamsClient) -> None:
    assert change_decoder() is None
    client = shared_reading_client.__wrapped__(SETTINGS)
    assert page_of(client, PAGES["images"])[0] == page_of(plain, PAGES["images"])[0]
