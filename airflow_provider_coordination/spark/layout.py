"""What a landed file looks like to those who look into its records: what tells a record from the others of its batch.

Records of a stream have columns that are always the same. Those of items have the columns of their source, which may
differ from file to file, and the provider's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

ORIGIN = "_origin"
"""The column that says what item a record came from."""
ROW = "_row"
"""The column that counts the records of an origin within a batch."""
BATCH_ID = "_batch_id"
PAYLOAD = "data"
"""The column that holds a record's payload, where it has one."""
RECORD = "record"
"""The column of the dead letters that holds the source's other columns, as JSON."""

WHAT_FAILED = (pa.field("error", pa.string()), pa.field("source", pa.string()))
"""The columns with which a dead letter begins."""
WHEN_IT_FAILED = (
    pa.field("stage", pa.string()),
    pa.field(BATCH_ID, pa.string()),
    pa.field("failed_at", pa.timestamp("us", tz="UTC")),
)
"""The columns with which a dead letter ends."""


@dataclass(frozen=True, kw_only=True)
class RecordLayout:
    """The columns of landed records.

    :param position: the two columns, a string and a 64-bit number, that together tell a record from the others of its
        batch.
    :param names: the columns that every record has.
    :param ddl: the columns as Spark reads them; None where each file has its own.
    :param dead_letter: the columns of the dead-letter sink; `docs/sinks.md` describes them.
    :param sampled: those that a job's summary tells of a bad record, by the names under which it does.
    :param place: where a record is, for people: a format string of columns.
    """

    position: tuple[str, str]
    names: tuple[str, ...]
    ddl: str | None
    dead_letter: pa.Schema
    sampled: Mapping[str, str]
    place: str

    def place_of(self, letter: Mapping[str, Any]) -> str:
        """Return where a bad record is, for people.

        :param letter: a row of the dead letters.
        """
        return self.place.format_map(letter)


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
    sampled={"origin": ORIGIN, "row": ROW},
    place="{_origin}, row {_row}",
)
"""Records of items."""
