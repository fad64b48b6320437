"""Stored texts are compressed without loss; messages name the first of many things and count the others."""

from __future__ import annotations

import base64
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_coordination.coordination import texts
from airflow_provider_coordination.coordination.texts import compress, decompress, first_of, rest_of

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(), below, max_size=4),
    max_leaves=10,
)


@given(values)
def test_packed_text_unpacks(value: object) -> None:
    text = compress(value)
    assert decompress(text) == value
    assert text.isascii()


def test_repetitive_text_is_short() -> None:
    assert len(compress(["the same owner"] * 1000)) < 200


@pytest.mark.parametrize(
    "text", ["!", "AAAA", "é", compress([1, 2, 3])[:8], base64.b64encode(zlib.compress(b"{")).decode()]
)
def test_text_that_was_not_packed_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decompress(text)


def test_too_large_value_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "MAX_DECOMPRESSED_BYTES", 100)
    assert decompress(compress("x" * 98)) == "x" * 98
    with pytest.raises(ValueError, match="too large"):
        decompress(compress("x" * 99))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b"], "a, b"),
        (["a", "b", "c"], "a, b and 1 more"),
        (list("abcde"), "a, b and 3 more"),
    ],
)
def test_first_texts_are_followed_by_the_number_of_others(names: list[str], expected: str) -> None:
    assert first_of(names, 2) == expected


def test_separator_stands_between_texts_only() -> None:
    assert first_of(["a: 1", "b: 2", "c: 3"], 2, separator="; ") == "a: 1; b: 2 and 1 more"


def test_rest_of_a_short_list_is_empty() -> None:
    assert (rest_of(2, 2), rest_of(3, 2)) == ("", "and 1 more")
