"""The columns of landed records, which of them identify a record within its batch, and which names are too similar.

Records of a stream always have the same columns. Records of items have the columns of their source, which may differ
from file to file, and the provider's own columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_provider_coordination.spark.spark_versions import type_of_ddl

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


ORIGIN = "_origin"
"""The column that names the item of a record."""
ROW = "_row"
"""The column with the record's number among the records of its origin within a batch."""
BATCH_ID = "_batch_id"
PAYLOAD = "data"
"""The column that holds a record's payload, if it has one."""
RECORD = "record"
"""The column of the dead letters that holds the source's other columns, as JSON."""
WHAT_FAILED = (pa.field("error", pa.string()), pa.field("source", pa.string()))
"""The first columns of a dead letter."""
WHEN_IT_FAILED = (
    pa.field("stage", pa.string()),
    pa.field(BATCH_ID, pa.string()),
    pa.field("failed_at", pa.timestamp("us", tz="UTC")),
    pa.field("sink", pa.string()),
    pa.field("row", pa.string()),
)
"""The last columns of a dead letter."""


@dataclass(frozen=True, kw_only=True)
class RecordLayout:
    """The columns of landed records.

    :param position: the two columns, a string and a 64-bit number, that together identify a record within its batch.
    :param names: the columns that every record has.
    :param ddl: the columns as Spark reads them; None if each file has its own.
    :param dead_letter: the columns of the dead-letter sink; `docs/bad_records.md` describes them.
    :param sample_fields: the columns that a job's summary shows of a bad record, by their names in the summary.
    :param location_format: describes where a record is, for messages: a format string over columns.
    """

    position: tuple[str, str]
    names: tuple[str, ...]
    ddl: str | None
    dead_letter: pa.Schema
    sample_fields: Mapping[str, str]
    location_format: str

    @property
    def columns(self) -> StructType | None:
        """The columns with Spark's types; None if each file has its own."""
        from pyspark.sql.types import StructType

        if self.ddl is None:
            return None
        schema = type_of_ddl(self.ddl)
        assert isinstance(schema, StructType)
        return schema

    def location_of(self, letter: Mapping[str, Any]) -> str:
        """Return a description of where a bad record is, for messages.

        :param letter: a row of the dead letters.
        """
        return self.location_format.format_map(letter)


ITEM_RECORDS = RecordLayout(
    position=(ORIGIN, ROW),
    names=(ORIGIN, ROW, BATCH_ID),
    ddl=None,
    dead_letter=pa.schema(
        [
            *WHAT_FAILED,
            pa.field(ORIGIN, pa.string()),
            pa.field(ROW, pa.int64()),
            pa.field(PAYLOAD, pa.binary()),
            pa.field(RECORD, pa.string()),
            *WHEN_IT_FAILED,
        ]
    ),
    sample_fields={"origin": ORIGIN, "row": ROW},
    location_format="{_origin}, row {_row}",
)
"""Records of items."""


def similar_names(columns: pa.Schema) -> tuple[str, str] | None:
    """Return two names of columns, or of fields of one struct, that differ by case at most; None if there are none.

    The name of a field has the names around it before dots.
    """
    return _similar(list(columns), "")


def quoted(name: str) -> str:
    """Return the name of a column in Spark's syntax, which separates the names of nested fields by dots."""
    return f"`{name.replace('`', '``')}`"


def _similar(fields: Sequence[pa.Field], within: str) -> tuple[str, str] | None:
    seen: dict[str, str] = {}
    for field in fields:
        lower = field.name.lower()
        if lower in seen:
            return f"{within}{seen[lower]}", f"{within}{field.name}"
        seen[lower] = field.name
        below = [field.type.field(number) for number in range(field.type.num_fields)]
        if (found := _similar(below, f"{within}{field.name}.")) is not None:
            return found
    return None
