"""Translation of a Druid data schema into the schema of a payload: time, dimensions and metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.kinesis import RECORD_COLUMNS
from airflow_provider_coordination.spark.payload_schema import AUTO, ISO, MICROS, MILLIS, SECONDS, time_pattern
from airflow_provider_coordination.supervisor.druid.expressions import Expressions, as_column, columns_of
from airflow_provider_coordination.supervisor.druid.filters import (
    FUNCTION,
    TIME,
    columns_in,
    given_instant,
    identifier,
    literal,
)
from airflow_provider_coordination.supervisor.druid.rows import (
    UnsupportedFieldError,
    check_keys,
    list_in,
    object_in,
    yes_or_no,
)

DIMENSION_TYPES = {
    "string": "STRING",
    "auto": "STRING",
    "json": "STRING",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
}
"""The Spark type of a dimension, by its type in Druid."""
CAST_TYPES = {
    "STRING": "STRING",
    "LONG": "BIGINT",
    "FLOAT": "FLOAT",
    "DOUBLE": "DOUBLE",
    "ARRAY<STRING>": "ARRAY<STRING>",
    "ARRAY<LONG>": "ARRAY<BIGINT>",
    "ARRAY<FLOAT>": "ARRAY<FLOAT>",
    "ARRAY<DOUBLE>": "ARRAY<DOUBLE>",
}
"""The Spark type of a dimension of the type `auto`, by its `castToType`."""
TIME_TYPES = {
    "auto": "TIMESTAMP",
    "iso": "TIMESTAMP",
    "posix": "TIMESTAMP",
    "ruby": "TIMESTAMP",
    "micro": "TIMESTAMP",
    "millis": "BIGINT",
    "nano": "BIGINT",
}
"""The Spark type of the time column, by its format in Druid in lower case; of a pattern it is TIMESTAMP."""
TIME_FORMATS = {"auto": AUTO, "iso": ISO, "posix": SECONDS, "ruby": SECONDS, "micro": MICROS}
"""The format of a TIMESTAMP column, by its format in Druid in lower case."""
METRIC_TYPES = {
    "long": "BIGINT",
    "double": "DOUBLE",
    "float": "FLOAT",
    "variance": "DOUBLE",
    "quantiles": "DOUBLE",
    "approxHistogram": "DOUBLE",
    "fixedBucketsHistogram": "DOUBLE",
    "momentSketch": "DOUBLE",
    "tDigestSketch": "DOUBLE",
    "KllDoubles": "DOUBLE",
    "KllFloats": "FLOAT",
    "Bitmap64": "BIGINT",
}
"""The Spark type of a metric's input, by the prefix of the metric's type; other inputs are strings."""
SKETCH_SUFFIXES = ("Merge", "Fold")
"""The ends of the types of metrics whose inputs are sketches, as text."""
YEAR_OF_ERA = re.compile(r"'[^']*'|(Y+)")
"""The year of an era in a pattern, outside of literal text."""
PARTITION_KEY = "partition_key"
ARRIVAL = "approximate_arrival_timestamp"
RESERVED = frozenset((*RECORD_COLUMNS, "_error"))
"""The columns that every record has."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NO_SUCH_COLUMN = "!!!_no_such_column_!!!"
"""The column that Druid's console names where no field of the records is the time."""
DISCOVERED = (
    "Druid discovers dimensions in the records; here 'schema' fixes the columns, so that a batch has the same rows "
    "whenever it is delivered. List the dimensions with their types in 'dimensions', or write a function that makes "
    "columns of 'data' and name it in 'transform'"
)


@dataclass
class DruidColumns:
    """The columns of a schema under construction.

    :param has_transform: whether the user gives a transform for what a schema cannot express.
    :param types: the type of each column, by name.
    :param required: the columns that must not be null.
    :param computed: the columns that the transform makes, or that expressions compute.
    :param computed_types: the types that the spec gives these columns, by name; those of expressions once they are
        translated.
    :param expressions: the expressions that compute columns, by name.
    :param time_formats: the format of the time column, by name.
    :param of_records: the columns that every record has, by their names in Druid.
    :param event_time: the column of the schema that is an instant for this package; empty if there is none.
    """

    has_transform: bool = False
    types: dict[str, str] = field(default_factory=dict)
    required: set[str] = field(default_factory=set)
    computed: set[str] = field(default_factory=set)
    computed_types: dict[str, str] = field(default_factory=dict)
    expressions: dict[str, str] = field(default_factory=dict)
    time_formats: dict[str, str] = field(default_factory=dict)
    of_records: dict[str, str] = field(default_factory=dict)
    event_time: str = ""

    def add(self, name: str, kind: str) -> None:
        """Add a column, unless it exists or the transform makes it.

        :raises UnsupportedFieldError: if records cannot have it.
        """
        if name in self.computed:
            self.computed_types.setdefault(name, kind)
        elif name not in self.types and name not in self.of_records and name != TIME:
            self._add(name, kind)

    def add_time(self, name: str, time_format: str | None, *, is_required: bool) -> None:
        """Add the column of the time.

        :param time_format: its format: one of Druid in lower case, or a pattern; None if the transform parses its text.
        :raises UnsupportedFieldError: if records cannot have it.
        """
        self._add(name, "STRING" if time_format is None else TIME_TYPES.get(time_format, "TIMESTAMP"))
        if name not in self.types:
            return
        if is_required:
            self.required.add(name)
        if time_format is not None and self.types[name] == "TIMESTAMP":
            self.time_formats[name] = TIME_FORMATS.get(time_format, time_format)
        if (name in self.time_formats or time_format == MILLIS) and TIME not in self.computed:
            self.event_time = name

    def require_transform(self, problem: str) -> None:
        """Check that the user gives a transform for what a schema cannot express.

        :param problem: what a schema cannot express, and the remedy.
        :raises UnsupportedFieldError: if there is no transform.
        """
        if not self.has_transform:
            raise UnsupportedFieldError(problem)

    def leave(self, name: str, problem: str) -> None:
        """Leave a column to the transform.

        :param problem: why a schema cannot have it, and the remedy.
        :raises UnsupportedFieldError: if there is no transform.
        """
        self.require_transform(problem)
        self.computed.add(name)

    def _add(self, name: str, kind: str) -> None:
        other = next((each for each in self.types if each.lower() == name.lower()), None)
        if name.lower() in RESERVED:
            self.leave(
                name,
                f"every record has a column {name!r} already; write a function that parses the column 'data' into "
                "columns with other names, and name it in 'transform'",
            )
        elif other is not None:
            self.leave(
                name,
                f"{name!r} and {other!r} are one column for Spark; write a function that renames one of them, and "
                "name it in 'transform'",
            )
        else:
            self.types[name] = kind

    @property
    def filterable_types(self) -> dict[str, str]:
        """The type of each column that a filter may use, by name."""
        return {**self.readable_types, **self.computed_types}

    @property
    def readable_types(self) -> dict[str, str]:
        """The type of each column that an expression may use, by name: those of the records."""
        return {**self.types, PARTITION_KEY: "STRING", ARRIVAL: "TIMESTAMP"} if self.of_records else self.types

    @property
    def ddl(self) -> str | None:
        """The schema as DDL; None if it has no columns."""
        parts = (
            f"{identifier(name)} {kind}{' NOT NULL' * (name in self.required)}" for name, kind in self.types.items()
        )
        return ", ".join(parts) or None


def computed_columns(spec: Any) -> Iterator[str]:
    """Yield the columns that the transforms of a Druid spec compute, except those that replace a field of the records.

    :param spec: Druid's `transformSpec`.
    """
    transforms = spec.get("transforms") if isinstance(spec, Mapping) else None
    for each in transforms if isinstance(transforms, list) else ():
        name = each.get("name") if isinstance(each, Mapping) else None
        if isinstance(name, str) and not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", str(each.get("expression"))):
            yield name


def add_time(columns: DruidColumns, spec: Any) -> str:
    """Add the time column.

    :param spec: Druid's `timestampSpec`.
    :returns: the name of the column.
    :raises UnsupportedFieldError: if a schema cannot express it.
    """
    time_spec = object_in("timestampSpec", spec)
    check_keys("timestampSpec", time_spec, ("column", "format", "missingValue"))
    name = time_spec.get("column")
    name = "timestamp" if name is None else name
    if not isinstance(name, str) or not name:
        raise UnsupportedFieldError(f"'column' must be the name of a column; got {name!r}")
    if name in columns.of_records:
        return columns.of_records[name]
    missing = time_spec.get("missingValue")
    try:
        time_format = _time_format(str(time_spec.get("format") or "auto"))
    except ConfigurationError as error:
        columns.require_transform(f"{error}; {FUNCTION}")
        time_format = None
    if name not in columns.computed and name != NO_SUCH_COLUMN:
        columns.add_time(name, time_format, is_required=missing is None)
    if missing is not None and not columns.has_transform:
        return _fill_in(columns, name, str(time_format), missing)
    return TIME if TIME in columns.computed else name


def _fill_in(columns: DruidColumns, name: str, time_format: str, missing: Any) -> str:
    """Compute the time where a record has none.

    :param missing: Druid's `missingValue`.
    :returns: the name of the column of the time.
    """
    instant = given_instant(missing)
    if instant is None:
        raise UnsupportedFieldError(f"'missingValue' must be an instant such as 2010-01-01T00:00:00Z; got {missing!r}")
    milliseconds = (instant - EPOCH) // timedelta(milliseconds=1)
    filling = {MILLIS: f"{milliseconds}L", "nano": f"{milliseconds}000000L"}.get(time_format, literal(instant))
    if name == NO_SUCH_COLUMN:  # each record has this time
        columns.expressions[TIME] = literal(instant)
        columns.computed_types[TIME] = "TIMESTAMP"
        return TIME
    columns.expressions[name] = f"coalesce({identifier(name)}, {filling})"
    return name


def add_computed(columns: DruidColumns, spec: Any, time: str) -> None:
    """Add a column that an expression computes.

    :param spec: one of Druid's `transforms`.
    :param time: the name of the column of the time.
    :raises UnsupportedFieldError: naming the transform and the part of it that has no equal.
    """
    transform = object_in("a transform", spec)
    name, expression = transform.get("name"), transform.get("expression")
    if transform.get("type") != "expression" or not isinstance(name, str) or not isinstance(expression, str):
        raise UnsupportedFieldError(
            f"the transform {name!r} of the type {transform.get('type')!r} is not an expression with a name; {FUNCTION}"
        )
    try:
        if name in (TIME, time) or name.lower() in RESERVED:
            raise UnsupportedFieldError("it replaces a column that every record has, or the time")
        for each in columns_of(expression):
            columns.add(each, "STRING")
        value = Expressions(columns.readable_types, columns.of_records).translate(expression)
        value = as_column(value, columns.types.get(name, columns.computed_types.get(name)))
    except UnsupportedFieldError as error:
        raise UnsupportedFieldError(f"the transform {name!r} computes {expression!r}: {error}; {FUNCTION}") from None
    columns.expressions[name] = value.text
    columns.computed_types[name] = value.kind


def _time_format(given: str) -> str:
    """Return a format of Druid: its name in lower case, or a pattern of Joda as one of this package.

    :raises ConfigurationError: if a part of the pattern has no exact meaning.
    """
    if given.lower() in TIME_TYPES:
        return given.lower()
    # Before the year 1, which no TIMESTAMP has, the year of an era differs from the year.
    pattern = YEAR_OF_ERA.sub(lambda found: found[0] if found[1] is None else "y" * len(found[1]), given)
    return time_pattern(pattern).text


def add_dimensions(columns: DruidColumns, spec: Any) -> list[str]:
    """Add a column for each dimension.

    :param spec: Druid's `dimensionsSpec`.
    :returns: what is left to the user.
    :raises UnsupportedFieldError: if a schema cannot express it.
    """
    dimensions_spec = object_in("dimensionsSpec", spec)
    check_keys(
        "dimensionsSpec",
        dimensions_spec,
        (
            "dimensions",
            "dimensionExclusions",
            "spatialDimensions",
            "includeAllDimensions",
            "useSchemaDiscovery",
            "forceSegmentSortByTime",
        ),
    )
    dimensions, unknown = list_in("dimensions", dimensions_spec.get("dimensions")), []
    if dimensions_spec.get("spatialDimensions") or any(
        isinstance(each, Mapping) and each.get("type") == "spatial" for each in dimensions
    ):
        raise UnsupportedFieldError(
            "spatial dimensions belong to Druid's indexes: list their columns as dimensions of type double"
        )
    for each in dimensions:
        if isinstance(each, str):
            columns.add(each, "STRING")
            continue
        if not isinstance(each, Mapping) or not isinstance(each.get("name"), str):
            raise UnsupportedFieldError(f"a dimension must be a name, or an object with a 'name'; got {each!r}")
        kind = str(each.get("type") or "string")
        if kind not in DIMENSION_TYPES:
            unknown.append(f"`{each['name']}` is of type {kind!r}")
        columns.add(each["name"], _type_of_dimension(each, kind))
    is_discovering = not dimensions or any(
        yes_or_no(dimensions_spec.get(name) or False) for name in ("includeAllDimensions", "useSchemaDiscovery")
    )
    notes = []
    if is_discovering:
        columns.require_transform(DISCOVERED)
        notes.append("Druid discovers dimensions in the records: your transform makes those columns.")
    if unknown:
        notes.append(f"Druid reads unknown types as strings: {', '.join(unknown)}. Declare other types in `schema`.")
    return notes


def _type_of_dimension(dimension: Mapping[str, Any], kind: str) -> str:
    """Return the Spark type of a dimension."""
    cast = dimension.get("castToType")
    if kind != "auto" or cast is None:
        return DIMENSION_TYPES.get(kind, "STRING")
    if not isinstance(cast, str) or cast not in CAST_TYPES:
        raise UnsupportedFieldError(
            f"dimension {dimension['name']!r} has the castToType {cast!r}; use one of {', '.join(CAST_TYPES)}"
        )
    return CAST_TYPES[cast]


def add_metrics(columns: DruidColumns, specs: Any) -> None:
    """Add the input columns of metrics.

    :param specs: Druid's `metricsSpec`.
    :raises UnsupportedFieldError: if a schema cannot express it.
    """
    if not isinstance(specs, list):
        raise UnsupportedFieldError(f"it must be a list; got {specs!r}")
    filtered: list[str] = []
    for each in specs:
        metric = each
        while isinstance(metric, Mapping) and metric.get("type") == "filtered":
            filtered.extend(columns_in(metric.get("filter")))
            metric = metric.get("aggregator")
        if not isinstance(metric, Mapping) or not isinstance(metric.get("type"), str):
            raise UnsupportedFieldError(f"a metric must be an object with a 'type'; got {each!r}")
        if metric.get("expression") is not None:
            columns.require_transform(f"metric {metric.get('name')!r} is computed by an expression; {FUNCTION}")
        name = metric.get("fieldName")
        names = metric.get("fieldNames", metric.get("fields"))
        for column in [name] if isinstance(name, str) else list_in("fieldNames", names):
            if isinstance(column, str):
                columns.add(column, _type_of_input(metric["type"]))
    for column in filtered:
        columns.add(column, "STRING")


def _type_of_input(kind: str) -> str:
    """Return the Spark type of the input of a metric."""
    if kind.endswith(SKETCH_SUFFIXES):
        return "STRING"
    return next((found for prefix, found in METRIC_TYPES.items() if kind.startswith(prefix)), "STRING")
