"""One column of a payload: how the JSON of its field becomes its value.

A number may be text: `"12.5"` is a DOUBLE as `12.5` is. What has no exact place in the column does not fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from airflow_provider_coordination.spark.time_formats import AUTO, ISO, UNITS

if TYPE_CHECKING:
    from pyspark.sql import Column

WHOLE = frozenset({"tinyint", "smallint", "int", "bigint"})
FLOATING = frozenset({"float", "double"})
WHOLE_NUMBER = r"^[+-]?\d+$"
ZERO_FRACTION = r"^([+-]?\d+)\.0+$"
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
NUMBER_OF_UNITS = r"^[+-]?\d{1,20}(\.\d{1,12}|\.\d{1,16}[eE]\d{1,2})?$"
"""A number that DECIMAL(38, 12) holds exactly, if it is in its range; Spark writes large numbers with an exponent."""
ISO_8601 = r"^\d{4}-\d{2}(-\d{2}([T ]\d{2}:\d{2}(:\d{2}([.]\d{1,6}0*)?)?( ?(Z|UTC|[+-]\d{2}(:?\d{2})?))?)?)?$"
"""Text of ISO 8601 with at most six digits of a second, which is what a TIMESTAMP holds."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_MICROSECOND = (datetime.min.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
LAST_MICROSECOND = (datetime.max.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)


@dataclass(frozen=True, kw_only=True)
class PayloadColumn:
    """A column of a payload.

    :param name: its name.
    :param type: its type, as Spark writes it.
    :param time_format: the format of its times; None for those that Spark accepts.
    """

    name: str
    type: str
    time_format: str | None = None

    @property
    def is_converted(self) -> bool:
        """Whether the field is parsed as STRING, which `value` converts."""
        return self.time_format is not None or self.type in WHOLE or self.type in FLOATING

    def value(self, parsed: Column) -> Column:
        """Return the column's value; null if the field is null, or does not fit.

        :param parsed: the field, parsed as STRING if `is_converted`, otherwise as the column's type.
        """
        if self.time_format is not None:
            return self._time(parsed, self.time_format)
        if self.type in WHOLE:
            return self._whole(parsed)
        return self._floating(parsed) if self.type in FLOATING else parsed

    def _whole(self, text: Column) -> Column:
        from pyspark.sql import functions

        given = functions.when(text.rlike(WHOLE_NUMBER), text.try_cast(self.type))
        return functions.coalesce(given, functions.regexp_extract(text, ZERO_FRACTION, 1).try_cast(self.type))

    def _floating(self, text: Column) -> Column:
        from pyspark.sql import functions

        number = functions.when(text.rlike(NUMBER), text.try_cast(self.type))
        return functions.when(functions.abs(number) < functions.lit(float("inf")), number)

    def _time(self, text: Column, time_format: str) -> Column:
        from pyspark.sql import functions

        iso = functions.when(text.rlike(ISO_8601), text.try_cast("timestamp"))
        if time_format == ISO:
            return iso
        number = self._microseconds(text, UNITS[time_format])
        return functions.coalesce(number, iso) if time_format == AUTO else number

    def _microseconds(self, text: Column, unit: int) -> Column:
        """Return a number of `unit` microseconds as a TIMESTAMP, if it is one."""
        from pyspark.sql import functions

        whole = functions.when(text.rlike(NUMBER_OF_UNITS), text.try_cast("decimal(38,12)") * functions.lit(unit))
        micros = whole.try_cast("bigint")
        fits = micros.between(FIRST_MICROSECOND, LAST_MICROSECOND) & (micros == whole)
        return functions.when(fits, functions.timestamp_micros(micros))
