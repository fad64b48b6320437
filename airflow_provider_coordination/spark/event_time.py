"""Records that are late or early: which ones, by bounds on a field of their payload, as Spark computes it.

The field is parsed by the bounds alone, whatever schema the job has: so a batch loses the same records whoever delivers
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import format_instant
from airflow_provider_coordination.sources.event_time import EventTimeBounds
from airflow_provider_coordination.spark.job_settings import RejectionSettings
from airflow_provider_coordination.spark.payload import STRICT, JsonPayload, payload_text

if TYPE_CHECKING:
    from pyspark.sql import Column

MILLISECONDS = "bigint"
"""The type of a column that counts milliseconds since 1970."""
TYPES = ("timestamp", "timestamp_ntz", MILLISECONDS)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def bounds_of(rejection: RejectionSettings, payload: JsonPayload | None) -> EventTimeBounds | None:
    """Return the bounds that a job records with what it lands; None if it rejects nothing.

    :param payload: parses its payloads; None if it does not.
    :raises ConfigurationError: if there is no such column, or it is no time.
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
    return EventTimeBounds(column=name, type=types[name], earliest=rejection.earliest, latest=rejection.latest)


@dataclass(frozen=True)
class EventTime:
    """The event time of records, as columns of Spark.

    :param bounds: what it must be within.
    """

    bounds: EventTimeBounds

    def is_outside(self) -> Column:
        """Return whether a record is late or early; it is not where it has no event time."""
        from pyspark.sql import functions

        return functions.coalesce(self._is_late() | self._is_early(), functions.lit(False))

    def reason(self) -> Column:
        """Return why a record that is late or early is rejected."""
        from pyspark.sql import functions

        def said(what: str, bound: datetime | None) -> Column:
            than = "" if bound is None else format_instant(bound)
            return functions.concat(
                functions.lit(f"{what}: field '{self.bounds.column}' is "), self._parsed().cast("string"),
                functions.lit(f", {'before' if what == 'late' else 'after'} {than}"),
            )  # fmt: skip

        late = functions.coalesce(self._is_late(), functions.lit(False))
        return functions.when(late, said("late", self.bounds.earliest)).otherwise(said("early", self.bounds.latest))

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
        """How many microseconds the number of an event time counts by."""
        return 1000 if self.bounds.type == MILLISECONDS else 1

    def _number(self) -> Column:
        from pyspark.sql import functions

        if self.bounds.type == MILLISECONDS:
            return self._parsed()
        return functions.unix_micros(self._parsed().cast("timestamp"))

    def _parsed(self) -> Column:
        from pyspark.sql import functions

        quoted = self.bounds.column.replace("`", "``")
        schema = f"`{quoted}` {self.bounds.type}"
        return functions.from_json(payload_text(), schema, STRICT).getField(self.bounds.column)


def _micros(instant: datetime) -> int:
    return (instant - EPOCH) // timedelta(microseconds=1)
