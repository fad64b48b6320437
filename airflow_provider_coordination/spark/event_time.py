"""Late and early records: found by bounds on a field of their payload, computed by Spark.

The field is parsed with the type in the bounds, whatever the job's schema. So the same records of a batch are left out,
whichever job delivers it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import format_instant
from airflow_provider_coordination.sources.landed import EventTimeBounds
from airflow_provider_coordination.spark.column_names import quoted
from airflow_provider_coordination.spark.job_settings import RejectionSettings
from airflow_provider_coordination.spark.payload import JsonPayload, payload_text
from airflow_provider_coordination.spark.payload_column import STRICT, PayloadColumn, parsed_schema, texts_of
from airflow_provider_coordination.spark.payload_values import once

if TYPE_CHECKING:
    from pyspark.sql import Column

MILLISECONDS = "bigint"
"""The type of a column that counts milliseconds since 1970."""
TYPES = ("timestamp", "timestamp_ntz", MILLISECONDS)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def bounds_of(rejection: RejectionSettings, payload: JsonPayload | None) -> EventTimeBounds | None:
    """Return the event-time bounds that a job records with its batches; None if it rejects no records.

    :param payload: parses the job's payloads; None if they are not parsed.
    :raises ConfigurationError: if there is no such column, or it is not a time.
    """
    name = rejection.event_time
    if name is None:
        return None
    types = {} if payload is None else payload.types
    if name not in types:
        raise ConfigurationError(
            f"RejectionSettings: field 'event_time' is {name!r}, which is no column of 'schema'; its columns are "
            f"{', '.join(map(repr, types)) or 'none'}"
        )
    if types[name] not in TYPES:
        raise ConfigurationError(
            f"RejectionSettings: field 'event_time' is {name!r}, which is of type {types[name].upper()} in 'schema'; "
            "declare it there as TIMESTAMP, as TIMESTAMP_NTZ in UTC, or as BIGINT of milliseconds since 1970"
        )
    return EventTimeBounds(
        column=name,
        type=types[name],
        earliest=rejection.earliest,
        latest=rejection.latest,
        time_format=None if payload is None else payload.time_formats.get(name),
    )


@dataclass(frozen=True)
class EventTime:
    """The event time of records, as Spark columns.

    :param bounds: the bounds for the event time.
    """

    bounds: EventTimeBounds

    def is_outside(self) -> Column:
        """Return whether a record is late or early; a record without an event time is neither."""
        from pyspark.sql import functions

        return functions.coalesce(self._is_late() | self._is_early(), functions.lit(False))

    def reason(self) -> Column:
        """Return why a record that is late or early is rejected."""
        from pyspark.sql import functions

        def text(what: str, bound: datetime | None) -> Column:
            than = "" if bound is None else format_instant(bound)
            return functions.concat(
                functions.lit(f"{what}: field '{self.bounds.column}' is "), self._parsed().cast("string"),
                functions.lit(f", {'before' if what == 'late' else 'after'} {than}"),
            )  # fmt: skip

        late = functions.coalesce(self._is_late(), functions.lit(False))
        return functions.when(late, text("late", self.bounds.earliest)).otherwise(text("early", self.bounds.latest))

    def _is_late(self) -> Column:
        from pyspark.sql import functions

        if self.bounds.earliest is None:
            return functions.lit(False)
        # A record is at or after an instant if its milliseconds are not below the instant's, rounded up.
        return self._number() < -(-_micros(self.bounds.earliest) // self._unit)

    def _is_early(self) -> Column:
        from pyspark.sql import functions

        if self.bounds.latest is None:
            return functions.lit(False)
        return self._number() > _micros(self.bounds.latest) // self._unit

    @property
    def _unit(self) -> int:
        """The unit of an event time's number, in microseconds."""
        return 1000 if self.bounds.type == MILLISECONDS else 1

    def _number(self) -> Column:
        from pyspark.sql import functions

        if self.bounds.type == MILLISECONDS:
            return self._parsed()
        return functions.unix_micros(self._parsed().cast("timestamp"))

    def _parsed(self) -> Column:
        from pyspark.sql import functions
        from pyspark.sql.types import StructType

        schema = StructType.fromDDL(f"{quoted(self.bounds.column)} {self.bounds.type}")
        assert isinstance(schema, StructType)
        [field] = schema.fields
        column = PayloadColumn(name=field.name, kind=field.dataType, time_format=self.bounds.time_format)
        payload = payload_text()

        def given(parsed: Column) -> Column:
            return column.given(parsed.getField(column.name), texts_of([column], payload, parsed))

        # Each once: a filter evaluates an expression again for each mention.
        parsed = functions.from_json(payload, parsed_schema([column]), STRICT)
        return once(once(parsed, given), column.value)


def _micros(instant: datetime) -> int:
    return (instant - EPOCH) // timedelta(microseconds=1)
