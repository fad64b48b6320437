"""The tables of the manual that are made from code are as the code is."""

from __future__ import annotations

import pytest

from tools import parameter_tables, type_tables


def test_page_of_types_shows_the_cases_of_the_tests() -> None:
    assert type_tables.PAGE.read_text() == type_tables.page(), "run `python -m tools.type_tables`"


@pytest.mark.parametrize("name", parameter_tables.TABLES)
def test_tables_of_options_show_the_docstrings(name: str) -> None:
    written = (parameter_tables.DOCS / name).read_text()
    assert written == parameter_tables.page(name), "run `python -m tools.parameter_tables`"
