"""The manual's table of types is the one that the tests deliver."""

from __future__ import annotations

from tools import type_tables


def test_page_of_types_shows_the_cases_of_the_tests() -> None:
    assert type_tables.PAGE.read_text() == type_tables.page(), "run `python -m tools.type_tables`"
