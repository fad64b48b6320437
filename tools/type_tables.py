"""Write the tables of `docs/types.md` from the table of types that the tests deliver to every sink.

Run this after you change `tests/support/type_table.py`: a test compares the page with it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa

from tests.support.type_table import (
    CASES,
    LEFT_OUT,
    OF_ARROW,
    OF_DYNAMODB,
    OF_OPENSEARCH,
    OF_PARQUET,
    OF_SPARK,
    SINK_TYPES,
    SINKS,
    Case,
    Cell,
    RefusedValues,
    sink_type,
)

PAGE = Path(__file__).resolve().parents[1] / "docs" / "types.md"
HEADING = "## Landed types in each sink"
TITLES = {
    "parquet": "Parquet, as Spark reads it",
    "delta": "Delta, as Spark reads it",
    "iceberg": "Iceberg, as Spark reads it",
    "postgresql": "PostgreSQL",
    "mariadb": "MariaDB, MySQL",
}
NESTED = pa.list_(pa.int32()), pa.map_(pa.string(), pa.int32()), pa.struct([("x", pa.int32())])
SOURCES = (
    (OF_ARROW, "## Arrow types", "What a source's reader returns, and what pyarrow finds in Parquet."),
    (
        OF_PARQUET,
        "## Parquet types",
        "Physical types with their logical ones, including those that only older programs write.",
    ),
    (OF_SPARK, "## Types of a transform", "Spark's types, and the type of the files."),
    (
        OF_DYNAMODB,
        "## DynamoDB types",
        "Documents are JSON ([dynamodb_source.md](dynamodb_source.md)). `schema` gives them the type.",
    ),
    (
        OF_OPENSEARCH,
        "## OpenSearch types",
        "Documents are as they were indexed ([opensearch.md](opensearch.md)). `schema` gives them the type.",
    ),
)


def tables() -> str:
    """Return the tables, from their first heading on."""
    kinds = [*SINK_TYPES, pa.decimal128(38, 10), pa.binary(2), *NESTED]
    parts = [
        HEADING,
        _table(
            ["landed", *TITLES.values()],
            [[str(kind), *(_text(sink_type(kind, sink)) for sink in SINKS)] for kind in kinds],
        ),
        "Spark cannot read an Iceberg table that has times of day; other readers can. In MariaDB, `JSON` is "
        "`longtext`. MariaDB and `jsonb` store -0.0 as 0.0, which is equal to it. Files have no bounds for floats, "
        "since filters of Spark would skip NaN and -0.0 by them.",
        "## Values that a sink refuses",
        "The batch fails and waits. A refused value does not reach the other sinks of the job either.",
        _table(["value", "refused by", "remedy"], _refused()),
    ]
    for group, heading, introduction in SOURCES:
        cases = [case for case in CASES if case.group == group]
        rows = [[_name(case), _landed(case)] for case in cases]
        parts += [heading, introduction, _table(["type", "landed as"], list(dict.fromkeys(map(tuple, rows))))]
    return "\n\n".join(parts) + "\n"


def _refused() -> Iterable[Sequence[str]]:
    for case in CASES:
        sinks = [
            "MariaDB" if sink == "mariadb" else "PostgreSQL" if sink == "postgresql" else sink for sink in case.refused
        ]
        remedies = dict.fromkeys(each.remedy for each in case.refused.values())
        if sinks:
            yield [_name(case), ", ".join(sinks), "; ".join(remedies)]


def _name(case: Case) -> str:
    kind, colon, what = case.name.partition(": ")
    schema = f" as `{case.documents[1]}`" if case.documents and " as " not in kind else ""
    return f"`{kind}`{schema}{colon}{what}"


def _landed(case: Case) -> str:
    return (
        LEFT_OUT
        if case.lands is None
        else _text(case.lands if isinstance(case.lands, RefusedValues) else str(case.lands))
    )


def _text(cell: Cell) -> str:
    return f"refused: {cell.remedy}" if isinstance(cell, RefusedValues) else f"`{cell}`"


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    lines[2:] = [[f"`{first}`" if "`" not in first else first, *rest] for first, *rest in lines[2:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page() -> str:
    """Return the page as it should be."""
    return PAGE.read_text().partition(HEADING)[0] + tables()


def main() -> int:
    """Write the page; return 0."""
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
