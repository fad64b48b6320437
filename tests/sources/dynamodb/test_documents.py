"""Items of DynamoDB become documents."""

from __future__ import annotations

import json
from base64 import b64decode
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_coordination.sources.dynamodb.calls import key_at, plain_json, position_of, typed_values
from airflow_provider_coordination.sources.items import ItemPosition, ItemUnreadableError

numbers = st.decimals(allow_nan=False, allow_infinity=False, places=10).map(str) | st.integers().map(str)
key_values = (
    st.fixed_dictionaries({"S": st.text()})
    | st.fixed_dictionaries({"N": numbers})
    | st.fixed_dictionaries({"B": st.binary()})
)
keys = st.dictionaries(st.text(min_size=1), key_values, min_size=1, max_size=2)


@given(keys)
def test_key_of_any_type_survives_as_a_position(key: dict[str, Any]) -> None:
    assert key_at(position_of(key)) == key


@given(keys)
def test_key_survives_within_a_partition_position(key: dict[str, Any]) -> None:
    stored = str(ItemPosition(0, position_of(key)))
    assert key_at(ItemPosition.parse(stored).within) == key


@pytest.mark.parametrize("position", ["x", "[]", '"a"', '{"id": 1}', '{"id": {"B": "*"}}'])
def test_invalid_key_is_refused_with_a_remedy(position: str) -> None:
    with pytest.raises(ItemUnreadableError, match="reset the partition"):
        key_at(position)


def test_item_becomes_plain_json() -> None:
    item = {
        "text": {"S": 'a "quote", é and 😀'},
        "number": {"N": "12"},
        "binary": {"B": b"\x00\xff"},
        "yes": {"BOOL": True},
        "nothing": {"NULL": True},
        "map": {"M": {"list": {"L": [{"N": "1"}, {"M": {}}, {"L": []}]}}},
        "texts": {"SS": ["a", "b"]},
        "numbers": {"NS": ["1", "2.5"]},
        "binaries": {"BS": [b"a"]},
    }
    assert json.loads(plain_json(item)) == {
        "text": 'a "quote", é and 😀',
        "number": 12,
        "binary": "AP8=",
        "yes": True,
        "nothing": None,
        "map": {"list": [1, {}, []]},
        "texts": ["a", "b"],
        "numbers": [1, 2.5],
        "binaries": ["YQ=="],
    }


@given(numbers)
def test_number_keeps_every_digit(number: str) -> None:
    read = json.loads(plain_json({"n": {"N": number}}), parse_float=Decimal, parse_int=Decimal)
    assert str(read["n"]) == str(Decimal(number))


@given(st.text())
def test_text_is_written_as_by_json(text: str) -> None:
    assert plain_json({text: {"S": text}}) == json.dumps({text: text}, ensure_ascii=False, separators=(",", ":"))


def test_number_beyond_json_becomes_text() -> None:
    assert plain_json({"n": {"N": "NaN"}, "m": {"N": ".5"}}) == '{"n":"NaN","m":".5"}'


@given(st.binary())
def test_export_and_scan_give_the_same_binary(content: bytes) -> None:
    scanned = plain_json({"b": {"B": content}})
    exported = json.loads(scanned)["b"]
    assert b64decode(exported) == content and plain_json({"b": {"B": exported}}) == scanned


@pytest.mark.parametrize("value", [1, {}, {"X": 1}, {"N": "1", "S": "1"}])
def test_value_without_dynamodb_type_is_refused(value: Any) -> None:
    with pytest.raises(ItemUnreadableError, match="not a typed value"):
        plain_json({"a": value})


def test_expression_values_pass_binary_as_bytes() -> None:
    assert typed_values({":a": {"N": "1"}, ":b": {"B": "AP8="}}) == {":a": {"N": "1"}, ":b": {"B": b"\x00\xff"}}
