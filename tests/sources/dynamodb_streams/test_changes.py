"""The columns of a change."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_provider_coordination.sources.dynamodb_streams.changes import CHANGE_SCHEMA, ChangeRecords
from airflow_provider_coordination.sources.items import ItemUnreadableError

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
DIGITS = "0.12345678901234567890123456789012345678"


def record(operation: str = "MODIFY", **changes: Any) -> dict[str, Any]:
    identity = changes.pop("userIdentity", None)
    return {
        "eventName": operation,
        "dynamodb": {
            "ApproximateCreationDateTime": NOON,
            "Keys": {"id": {"S": "a"}},
            "SequenceNumber": "100",
            "SizeBytes": 59,
            **changes,
        },
        **({"userIdentity": identity} if identity else {}),
    }


def row(of: dict[str, Any]) -> dict[str, Any]:
    [only] = ChangeRecords.of_response([of]).changes.to_pylist()
    return only


def test_change_has_its_images_and_facts() -> None:
    assert row(record(NewImage={"id": {"S": "a"}, "n": {"N": "2"}}, OldImage={"id": {"S": "a"}})) == {
        "sequence_number": "100",
        "operation": "MODIFY",
        "keys": '{"id":"a"}',
        "new_image": '{"id":"a","n":2}',
        "old_image": '{"id":"a"}',
        "approximate_creation_time": NOON,
        "is_ttl_delete": False,
        "size_bytes": 59,
        "data": '{"id":"a","n":2}',
    }


@pytest.mark.parametrize("order", [("id", "at"), ("at", "id")])
def test_composite_key_is_one_text_in_any_order(order: tuple[str, str]) -> None:
    of = {"id": {"S": "a"}, "at": {"N": "1"}}
    assert row(record(Keys={name: of[name] for name in order}))["keys"] == '{"at":1,"id":"a"}'


def test_payload_of_a_removed_item_is_its_key() -> None:
    removed = row(record("REMOVE", OldImage={"id": {"S": "a"}, "n": {"N": "2"}}))
    assert (removed["new_image"], removed["data"]) == (None, '{"id":"a"}')


@pytest.mark.parametrize(
    ("operation", "identity", "is_ttl"),
    [
        ("REMOVE", {"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"}, True),
        ("REMOVE", {"Type": "Service", "PrincipalId": "replication.dynamodb.amazonaws.com"}, False),
        ("REMOVE", None, False),
        ("MODIFY", {"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"}, False),
    ],
)
def test_delete_by_ttl_differs_from_others(operation: str, identity: dict[str, str] | None, is_ttl: bool) -> None:
    assert row(record(operation, userIdentity=identity))["is_ttl_delete"] is is_ttl


def test_numbers_binary_and_sets_keep_their_value() -> None:
    image = {"n": {"N": DIGITS}, "b": {"B": b"\x00\xff"}, "s": {"NS": ["1", DIGITS]}, "x": {"BS": [b"\x01"]}}
    text = row(record(NewImage=image))["new_image"]
    assert text == f'{{"n":{DIGITS},"b":"AP8=","s":[1,{DIGITS}],"x":["AQ=="]}}'


def test_unknown_type_of_a_value_is_refused() -> None:
    with pytest.raises(ItemUnreadableError, match="is not a typed value of DynamoDB"):
        ChangeRecords.of_response([record(NewImage={"n": {"Z": "1"}})])


def test_slices_and_instants_keep_whole_rows() -> None:
    records = ChangeRecords.of_response(
        [
            record(SequenceNumber=str(number), ApproximateCreationDateTime=NOON.replace(second=second))
            for number, second in [(9, 0), (10, 1), (11, 1), (12, 2)]
        ]
    )
    within = int(NOON.replace(second=1, microsecond=700_000).timestamp() * 1_000_000)
    assert records.first_since(within) == 1
    assert records[1:3].changes.column("sequence_number").to_pylist() == ["10", "11"]
    assert (records.last.sequence_number, records.size, records[2:2].size) == ("12", 4 * 59, 0)
    assert [json.loads(each.data) for each in records[:1]] == [{"id": "a"}]


def test_empty_response_has_every_column() -> None:
    assert ChangeRecords.of_response([]).changes.schema == CHANGE_SCHEMA
