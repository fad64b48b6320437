"""Write the manual's tables of options, sources and sinks from the docstrings and defaults of their classes.

Run this after you change an option: a test compares the pages with it. A row has the first sentences of a description,
as many as a cell may have words. The heads of the tables are written by hand, and so is a link at the end of a row.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields
from datetime import timedelta
from functools import partial
from itertools import takewhile
from json import dumps
from pathlib import Path
from typing import Any

from airflow_provider_coordination.settings import Described, is_connected
from airflow_provider_coordination.sources.dynamodb.kind import DynamoDBTable
from airflow_provider_coordination.sources.dynamodb_export.kind import DynamoDBExport
from airflow_provider_coordination.sources.dynamodb_streams.settings import DynamoDBStreams
from airflow_provider_coordination.sources.jdbc.kind import JdbcTable
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.sources.opensearch.kind import OpenSearchIndices
from airflow_provider_coordination.sources.own_source import Items
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.job_settings import (
    AcknowledgmentSettings,
    BadRecordSettings,
    LeaseSettings,
    RejectionSettings,
    RoundSettings,
)
from airflow_provider_coordination.spark.writes import DeltaTable, ForeachBatch, ParquetDataset
from airflow_provider_coordination.spark.writes.iceberg import IcebergTable
from airflow_provider_coordination.spark.writes.sql import SqlTable
from airflow_provider_coordination.supervisor.settings import (
    AutoScaleSettings,
    SparkSettings,
    SuperviseSettings,
    TuningSettings,
)
from airflow_provider_coordination.supervisor.spec_schema import json_schema, parameters_of
from airflow_provider_coordination.supervisor.spec_values import fields_of, to_json_with_defaults
from tools.prose import CELL_WORDS, words

Row = tuple[str, ...]
"""The name of an option, its default, perhaps more, and its meaning."""
DOCS = Path(__file__).resolve().parents[1] / "docs"
REQUIRED = "required"
LINK = re.compile(r" (\(\[[^\]]+\]\([^)]+\)\))\.? \|$", re.MULTILINE)
"""The link at the end of a row, in parentheses."""


def in_python(cls: type[Any]) -> Iterator[Row]:
    """Yield the options of a class as a DAG has them: those without a default, the others of its own, the inherited."""
    texts = parameters_of(cls)
    defaults = {field.name: _python_default(field) for field in fields(cls) if not is_connected(field)}
    for name in sorted(texts, key=lambda name: defaults[name] != REQUIRED):
        yield name, defaults[name], texts[name]


def with_templated(cls: type[Any]) -> Iterator[Row]:
    """Yield the options of a class of which Airflow does not render all."""
    for name, default, meaning in in_python(cls):
        yield name, default, "yes" if name in cls.template_fields else "no", meaning


def _python_default(field: Field[Any]) -> str:
    default = field.default if field.default_factory is MISSING else field.default_factory()
    if default is MISSING or isinstance(default, Described):
        return REQUIRED if default is MISSING else "-"
    return f"`{default.total_seconds():g} s`" if isinstance(default, timedelta) else f"`{default!r}`"


def in_specs(cls: type) -> Iterator[Row]:
    """Yield the options of a class as a spec has them."""
    texts = parameters_of(cls)
    for name, field in fields_of(cls).items():
        yield name, REQUIRED if field.is_required else _spec_default(field.default), texts[name]


def _spec_default(value: Any) -> str:
    default = to_json_with_defaults(value)
    if default is None or isinstance(default, dict):
        return "-"
    return f"`{default if isinstance(default, str) else dumps(default)}`"


def spec_keys() -> Iterator[Row]:
    """Yield the keys of a spec."""
    schema = json_schema()
    for name, of in schema["properties"].items():
        yield name, "yes" if name in schema["required"] else "no", of["description"]


def _of(*classes: type[Any]) -> dict[str, Callable[[], Iterator[Row]]]:
    return {f"| of `{cls.__name__}` | default | meaning |": partial(in_python, cls) for cls in classes}


OF_TOPICS = (RoundSettings, LeaseSettings, AcknowledgmentSettings, BadRecordSettings, RejectionSettings)
TABLES: dict[str, dict[str, Callable[[], Iterator[Row]]]] = {
    "job.md": {
        "| field | default | meaning |": partial(in_python, Ingestion),
        **_of(*OF_TOPICS),
    },
    "specs.md": {
        "| key | required | meaning |": spec_keys,
        "| key of `supervise` | default | meaning |": partial(in_specs, SuperviseSettings),
        "| key of `auto_scale` | default | meaning |": partial(in_specs, AutoScaleSettings),
        "| key of `tuning` | default | meaning |": partial(in_specs, TuningSettings),
        "| key of `spark` | default | meaning |": partial(in_specs, SparkSettings),
    },
    "kinesis.md": _of(KinesisStreams),
    "s3.md": _of(S3Objects),
    "jdbc.md": _of(JdbcTable),
    "dynamodb_source.md": _of(DynamoDBTable, DynamoDBExport),
    "dynamodb_streams.md": _of(DynamoDBStreams),
    "opensearch.md": _of(OpenSearchIndices),
    "your_own_source.md": {"| of `Items` | default | templated | meaning |": partial(with_templated, Items)},
    "sink_parquet.md": _of(ParquetDataset),
    "iceberg.md": _of(IcebergTable),
    "delta.md": _of(DeltaTable),
    "sink_sql.md": _of(SqlTable),
    "sink_foreach_batch.md": _of(ForeachBatch),
}
"""The tables of each page, by their first line."""


def page(name: str) -> str:
    """Return a page as it should be."""
    text = (DOCS / name).read_text()
    for head, rows in TABLES[name].items():
        before, found, after = text.partition(f"{head}\n{'|---' * (head.count('|') - 1)}|\n")
        if not found:
            raise LookupError(f"{name} has no table {head!r}")
        written = list(takewhile(lambda line: line.startswith("|"), after.splitlines(keepends=True)))
        rest = after[sum(map(len, written)) :]
        links = {line.split("`")[1]: link[1] for line in written if (link := LINK.search(line))}
        text = before + found + "".join(_line(row, links) for row in rows()) + rest
    return text


def _line(row: Row, links: dict[str, str]) -> str:
    name, *facts, meaning = row
    link = f" {links[name]}" if name in links else ""
    sentences = re.split(r"(?<=\.) (?=[A-Z`])", meaning)
    starts = [" ".join(sentences[:number]) for number in range(1, len(sentences) + 1)]
    text = [start for start in starts if start == starts[0] or words(f"{start}{link}") <= CELL_WORDS][-1]
    text = text[:1].upper() + text[1:].rstrip(".").replace("|", r"\|")
    return f"| `{name}` | {' | '.join(facts)} | {text}{link}. |\n"


def main() -> int:
    """Write the pages; return 0."""
    for name in TABLES:
        (DOCS / name).write_text(page(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
