"""Items whose form is known are written as every other item."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.sources.dynamodb.calls import plain_json
from airflow_provider_coordination.sources.dynamodb.item_texts import MAX_FORMS, ItemTexts
from airflow_provider_coordination.sources.items import ItemUnreadableError
from tests.support.depth import examples

NAMES = st.sampled_from(["a", "S", "N", "M", "%s", "%", "ö", ":", "1"])
TEXTS = st.sampled_from(["", "x", "%s", ":", '"', "\\", "{", "ö\n", "1", '":{"S":"'])
NUMBERS = st.sampled_from(["0", "-1.50", "1E+10", "38", "+1", ".5", "NaN", "1\n2", "", "01"])
VALUES = st.recursive(
    st.one_of(
        st.builds(lambda held: {"S": held}, TEXTS),
        st.builds(lambda held: {"N": held}, NUMBERS),
        st.builds(lambda held: {"BOOL": held}, st.booleans()),
        st.just({"NULL": True}),
        st.just({"B": "AP8="}),
        st.builds(lambda held: {"SS": held}, st.lists(TEXTS, max_size=2)),
        st.builds(lambda held: {"NS": held}, st.lists(NUMBERS, max_size=2)),
    ),
    lambda inner: st.one_of(
        st.builds(lambda held: {"L": held}, st.lists(inner, max_size=2)),
        st.builds(lambda held: {"M": held}, st.dictionaries(NAMES, inner, max_size=2)),
    ),
    max_leaves=3,
)
ITEMS = st.lists(st.dictionaries(NAMES, VALUES, max_size=2), min_size=1, max_size=8)


def by_name(item: Any) -> Any:
    return dict(sorted(item.items()))


def typed(item: Any, *, spaced: bool = False, ascii_only: bool = False) -> bytes:
    return json.dumps(item, ensure_ascii=ascii_only, separators=None if spaced else (",", ":")).encode()


@settings(max_examples=examples(300))
@given(ITEMS, st.booleans(), st.booleans())
def test_items_of_known_forms_are_written_the_same(items: list[Any], spaced: bool, ascii_only: bool) -> None:
    texts, keys = ItemTexts(json.loads), ItemTexts(json.loads, by_name)
    for item in items * 3:
        text = typed(item, spaced=spaced, ascii_only=ascii_only)
        assert texts.plain(text) == plain_json(item)
        assert keys.plain(text) == plain_json(by_name(item))


def test_items_of_a_known_form_are_not_parsed() -> None:
    parsed = []

    def decode(text: bytes | str) -> Any:
        parsed.append(text)
        return json.loads(text)

    texts = ItemTexts(decode)
    for number in range(9):
        item = {"id": {"S": f"item-{number}"}, "%": {"M": {"n": {"N": str(number)}}}, "is": {"BOOL": True}}
        assert texts.plain(typed(item)) == f'{{"id":"item-{number}","%":{{"n":{number}}},"is":true}}'
    assert len(parsed) == 3  # the first, and the second and its form


@pytest.mark.parametrize(
    "item",
    [
        pytest.param('{"a":{"S":"x"},"a":{"S":"y"}}', id="a name twice"),
        pytest.param('{"a":{"S":"x","N":"1"}}', id="two types"),
        pytest.param('{"a":{"X":"x"}}', id="a type that does not exist"),
        pytest.param('{"a":"x"}', id="no type"),
        pytest.param('{"a":{"N":1}}', id="a number that is not text"),
        pytest.param('{"a":{"BOOL":"x"}}', id="a truth value as text"),
        pytest.param("{}", id="no attribute"),
    ],
)
def test_items_of_odd_forms_are_always_parsed(item: str) -> None:
    texts = ItemTexts(json.loads)

    def outcome(write: Any) -> str:
        try:
            return str(write())
        except ItemUnreadableError as error:
            return repr(error)

    assert len({outcome(lambda: texts.plain(item.encode())) for _ in range(4)}) == 1
    assert outcome(lambda: texts.plain(item.encode())) == outcome(lambda: plain_json(json.loads(item)))


def test_bytes_that_are_not_utf8_are_refused() -> None:
    with pytest.raises(ValueError, match="utf-8"):
        ItemTexts(json.loads).plain(b'{"a":{"S":"\xff"}}')


def test_number_of_remembered_forms_is_bounded() -> None:
    texts = ItemTexts(json.loads)
    for number in range(3 * MAX_FORMS):
        assert texts.plain(typed({f"n{number}": {"N": "1"}})) == f'{{"n{number}":1}}'
        assert texts.plain(typed({"l": {"L": [{"N": "1"}] * (number % 900)}})).count("1") == number % 900
    assert sum(len(forms) for _, forms in texts._forms.values()) <= MAX_FORMS


def test_forms_that_differ_by_names_alone_are_bounded() -> None:
    texts = ItemTexts(json.loads)
    for number in range(3 * MAX_FORMS):
        assert texts.plain(typed({f"n{number}": {"N": "1"}})) == f'{{"n{number}":1}}'
    assert sum(len(forms) for _, forms in texts._forms.values()) <= MAX_FORMS
