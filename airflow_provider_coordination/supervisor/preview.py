"""A preview: a few records of a source, with the columns that a spec gives them, as far as that needs no Spark.

It leases nothing, writes nothing into a store and acknowledges nothing. What only Spark can do is said in a note.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.peek import Peek
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.spec_values import without_secrets

if TYPE_CHECKING:
    from airflow_provider_coordination.spark.previewed_payloads import PayloadPreview

MAX_RECORDS = 100
MAX_CHARACTERS = 1000
"""How much of a text is shown."""
MAX_ITEMS = 100
"""How many items of a list or an object are shown."""
OF_SOURCE, OF_PAYLOAD, COMPUTED = "source", "payload", "computed"


@dataclass(frozen=True, kw_only=True)
class PreviewColumn:
    """A column of the records.

    :param name: its name.
    :param type: its type: as `schema` writes it, or Arrow's of the source; empty if only Spark knows it.
    :param origin: `source`, `payload` or `computed`. Values of computed columns need Spark, and are not shown.
    """

    name: str
    type: str
    origin: str


@dataclass(frozen=True, kw_only=True)
class PreviewRow:
    """A row of the preview.

    :param record: the number of its record, from 1: a record may have several rows.
    :param values: its columns as JSON, without secrets; long texts are shortened.
    :param error: why the record is bad; empty if it is not.
    """

    record: int
    values: Mapping[str, Any]
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class Preview:
    """A few records of a source.

    :param source: the source's name.
    :param kind: the kind of source.
    :param columns: the columns that a transform receives, or else sinks.
    :param rows: the rows, in the order in which they were read.
    :param notes: what differs from what a job delivers, and what could not be read.
    :param nothing: why there is no record; empty if there is one.
    """

    source: str
    kind: str
    columns: Sequence[PreviewColumn]
    rows: Sequence[PreviewRow]
    notes: Sequence[str] = field(default_factory=tuple)
    nothing: str = ""


def preview_of(spec: IngestionSpec, peek: Peek, payloads: PayloadPreview | None) -> Preview:
    """Return the preview of records that were read.

    :param peek: the records.
    :param payloads: decodes their payloads; None if the spec says nothing about them.
    :raises ConfigurationError: if the spec parses payloads, and the records have none.
    :raises SourceError: if a registry of schemas gives no answer.
    """
    if payloads is not None and peek.records and payloads.column not in peek.columns:
        raise ConfigurationError(
            f"spec: fields 'schema' and 'payload' parse the column {payloads.column!r}, but the records have "
            f"{', '.join(peek.columns)}: leave 'schema' and 'payload' out, or read whole payloads"
        )
    rows = _rows(peek, payloads)
    return Preview(
        source=spec.source,
        kind=spec.ingestion.reads.kind,
        columns=list(_columns(spec, peek, payloads)),
        rows=rows,
        notes=[*peek.problems, *([] if payloads is None else payloads.notes), *_notes(spec)],
        nothing="" if rows else peek.nothing or "the source did not respond in time",
    )


def _columns(spec: IngestionSpec, peek: Peek, payloads: PayloadPreview | None) -> list[PreviewColumn]:
    found = [PreviewColumn(name=name, type=kind, origin=OF_SOURCE) for name, kind in peek.columns.items()]
    if payloads is not None:
        types = {**payloads.log_types, **payloads.types}
        found += [PreviewColumn(name=name, type=kind, origin=OF_PAYLOAD) for name, kind in types.items()]
    found += [PreviewColumn(name=name, type="", origin=COMPUTED) for name in spec.ingestion.computed or ()]
    return found


def _rows(peek: Peek, payloads: PayloadPreview | None) -> list[PreviewRow]:
    if payloads is None:
        return [PreviewRow(record=number, values=_shown_row(record)) for number, record in enumerate(peek.records, 1)]
    return [
        PreviewRow(
            record=row.record + 1, values=_shown_row({**peek.records[row.record], **row.values}), error=row.error
        )
        for row in payloads.rows([_bytes_of(record.get(payloads.column)) for record in peek.records])
    ]


def _shown_row(values: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = without_secrets({name: shown(value) for name, value in values.items()})
    return found


def _bytes_of(payload: str | bytes | None) -> bytes:
    return payload.encode() if isinstance(payload, str) else payload or b""


def _notes(spec: IngestionSpec) -> list[str]:
    """Return what only Spark does with the records."""
    ingestion, notes = spec.ingestion, []
    if ingestion.computed:
        notes.append(f"'computed' needs Spark: the values of {', '.join(map(repr, ingestion.computed))} are not shown")
    if ingestion.transform is not None:
        notes.append(f"'transform' needs Spark: these are the records that {ingestion.transform!r} receives")
    if any(sink.where for sink in spec.sinks):
        notes.append("'where' of sinks needs Spark: it is not shown which sink gets a record")
    if spec.supervise.event_time is not None:
        notes.append("late and early records are not left out")
    return notes


def shown(value: Any) -> Any:
    """Return a value as JSON: times as ISO 8601, decimals as text, and bytes as text, or else in base64."""
    if isinstance(value, bytes):
        try:
            return _shortened(value.decode())
        except UnicodeDecodeError:
            return _shortened(f"base64:{b64encode(value).decode()}")
    if isinstance(value, str):
        return _shortened(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(name): shown(each) for name, each in list(value.items())[:MAX_ITEMS]}
    if isinstance(value, list | tuple):
        return [shown(each) for each in value[:MAX_ITEMS]]
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # JSON has neither infinite numbers nor NaN
    return _shortened(str(value))


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}… ({len(text)} characters)"
