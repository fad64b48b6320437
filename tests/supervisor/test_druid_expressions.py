from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.supervisor.druid import from_druid
from tests.supervisor.test_druid import at, druid_with


def translated(*transforms: tuple[str, str], **more: Any) -> dict[str, Any]:
    """Return the spec of clicks with transforms; `page` is text, `added` long, and `value` the input of a doubleSum."""
    listed = [{"type": "expression", "name": name, "expression": expression} for name, expression in transforms]
    return dict(from_druid(druid_with("dataSchema.transformSpec", {"transforms": listed, **more}), lake="/lake").spec)


@pytest.mark.parametrize(
    ("name", "expression", "computed"),
    [
        ("page", "lower(page)", "lower(`page`)"),
        ("url", '"a.b"', "`a.b`"),
        ("n", "added + 2 * added", "(`added` + (2L * `added`))"),
        ("n", "-added - 1 - 1.5", "(((- `added`) - 1L) - 1.5D)"),
        # both bind equally tightly in Druid, from the left to the right
        ("n", "added || 2 && 3", "CAST((((`added` > 0) OR (2L > 0)) AND (3L > 0)) AS BIGINT)"),
        ("n", "!added", "CAST((NOT (`added` > 0)) AS BIGINT)"),
        ("n", "if(added, 'a', null)", "(CASE WHEN (`added` > 0) THEN 'a' ELSE NULL END)"),
        ("n", "case_simple(page, 'a', 1, 2)", "(CASE WHEN (`page` = 'a') THEN 1L ELSE 2L END)"),
        ("n", "case_searched(isnull(page), 1, 0)", "(CASE WHEN (`page` IS NULL) THEN 1L ELSE 0L END)"),
        ("n", r"concat(page, '\'\\', added)", r"concat(`page`, '\'\\', CAST(`added` AS STRING))"),
        ("page", "added", "CAST(`added` AS STRING)"),
        ("value", "added", "CAST(`added` AS DOUBLE)"),
    ],
)  # fmt: skip
def test_expression_becomes_sql(name: str, expression: str, computed: str) -> None:
    assert translated((name, expression))["computed"] == {name: computed}


def test_columns_of_expressions_are_read() -> None:
    spec = translated(("from", "nvl(referrer, 'none')"), ("page", "trim(page)"))
    assert spec["schema"] == "`at` TIMESTAMP NOT NULL, `page` STRING, `added` BIGINT, `value` DOUBLE, `referrer` STRING"


def test_filter_sees_the_computed_columns() -> None:
    spec = translated(("n", "added + 1"), filter={"type": "equals", "column": "n", "matchValue": 5})
    assert at(spec, "writes.0.parquet.where") == "`n` = 5"


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("added / 2", "'/' divides whole numbers without a remainder in Druid"),
        ("added % 2", "'%' fails on zero"),
        ("2 ^ added", r"'\^' makes whole numbers of powers"),
        ("strlen(page)", "the function 'strlen' with 1 arguments has no equivalent"),
        ("timestamp_parse(page)", "the function 'timestamp_parse'"),
        ("page + 1", r"'\+' needs columns of type long or double; `page` is STRING"),
        ("page < 'b'", "'<' of text orders by UTF-16"),
        ("page == added", "'==' compares STRING with BIGINT"),
        ("if(page, 1, 2)", "the text `page` is used as a condition"),
        ("if(added > 1, 'a', 2)", "its results have the types BIGINT, STRING"),
        ("replace(page, '', 'x')", "'replace' is translated only with literal texts"),
        ("lower(added)", "'lower' needs text; `added` is BIGINT"),
        ("__time + 1", "'__time' is not a column here"),
        ("concat(page, at)", "'at' is of type TIMESTAMP here"),
        ("added > 1 added", "'added' is not expected there"),
        ("lower(page", "a bracket is not closed|a comma is missing"),
        ("added +", "it ends too early"),
        ("[1, 2]", r"'\[1, 2\]' is not translated"),
        ("(" * 30 + "1" + ")" * 30, "nested more than 20 levels"),
        (r"'\x'", "has an unknown escape"),
    ],
)
def test_expression_without_an_equal_is_refused(expression: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=f"the transform 'new' computes .*: .*{problem}.*name it in 'transf"):
        translated(("new", expression))


@pytest.mark.parametrize(
    ("name", "expression", "problem"),
    [
        ("__time", "added", "it replaces a column that every record has, or the time"),
        ("at", "page", "it replaces a column that every record has, or the time"),
        ("data", "page", "it replaces a column that every record has, or the time"),
        ("added", "concat(page, 'x')", "its result is STRING, and the column is BIGINT"),
        ("added", "added + 0.5", "its result is DOUBLE, and the column is BIGINT"),
        ("other", "n", "'n' is not a column here"),
    ],
)
def test_column_that_cannot_be_computed_is_refused(name: str, expression: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        translated((name, expression), ("n", "added + 1"))
