"""Messages name the first of many things and count the others."""

from __future__ import annotations

import pytest

from airflow_provider_coordination.coordination.shown import first_of, rest_of


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b"], "a, b"),
        (["a", "b", "c"], "a, b and 1 more"),
        (list("abcde"), "a, b and 3 more"),
    ],
)
def test_first_texts_are_followed_by_the_number_of_others(texts: list[str], expected: str) -> None:
    assert first_of(texts, 2) == expected


def test_separator_stands_between_texts_only() -> None:
    assert first_of(["a: 1", "b: 2", "c: 3"], 2, separator="; ") == "a: 1; b: 2 and 1 more"


def test_rest_of_a_short_list_is_empty() -> None:
    assert (rest_of(2, 2), rest_of(3, 2)) == ("", "and 1 more")
