"""Translation of a Druid data schema into the schema of a payload: time, dimensions and metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_coordination.sources.kinesis import RECORD_COLUMNS
from airflow_provider_coordination.spark.payload_schema import AUTO, ISO, MICROS, MILLIS, SECONDS
from airflow_provider_coordination.supervisor.druid.filters import FUNCTION, TIME, columns_in, identifier
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
    "micro": "TIMESTAMP",
    "millis": "BIGINT",
    "nano": "BIGINT",
}
"""The Spark type of the time column, by its format in Druid in lower case."""
TIME_FORMATS = {"auto": AUTO, "iso": ISO, "posix": SECONDS, "micro": MICROS}
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
PARTITION_KEY = "partition_key"
ARRIVAL = "approximate_arrival_timestamp"
RESERVED = frozenset((*RECORD_COLUMNS, "_error"))
"""The columns that every record has."""
NO_SUCH_COLUMN = "!!!_no_such_column_!!!"
"""The column that Druid's console names where no field of the records is the time."""
DISCOVERED = "Druid discovers dimensions in the records. Add those that you need to `schema`; `data` has all of them."


@dataclass
class DruidColumns:
    """The columns of a schema under construction.

    :param has_transform: whether the user gives a transform for what a schema cannot express.
    :param types: the type of each column, by name.
    :param required: the columns that must not be null.
    :param computed: the columns that the transform makes.
    :param time_formats: the format of the time column, by name.
    :param of_records: the columns that every record has, by their names in Druid.
    :param event_time: the column of the schema that is an instant for this package; empty if there is none.
    """

    has_transform: bool = False
    types: dict[str, str] = field(default_factory=dict)
    required: set[str] = field(default_factory=set)
    computed: set[str] = field(default_factory=set)
    time_formats: dict[str, str] = field(default_factory=dict)
    of_records: dict[str, str] = field(default_factory=dict)
    event_time: str = ""

    def add(self, name: str, kind: str) -> None:
        """Add a column, unless it exists or the transform makes it.

        :raises UnsupportedFieldError: if records cannot have it.
        """
        if name not in self.types and name not in self.computed and name not in self.of_records and name != TIME:
            self._add(name, kind)

    def add_time(self, name: str, time_format: str, *, is_required: bool) -> None:
        """Add the column of the time.

        :param time_format: its format in Druid.
        :raises UnsupportedFieldError: if records cannot have it.
        """
        self._add(name, TIME_TYPES.get(time_format, "STRING"))
        if name not in self.types:
            return
        if is_required:
            self.required.add(name)
        if time_format in TIME_FORMATS:
            self.time_formats[name] = TIME_FORMATS[time_format]
        if (time_format in TIME_FORMATS or time_format == MILLIS) and TIME not in self.computed:
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
    name, time_format = time_spec.get("column"), str(time_spec.get("format") or "auto").lower()
    name = "timestamp" if name is None else name
    if not isinstance(name, str) or not name:
        raise UnsupportedFieldError(f"'column' must be the name of a column; got {name!r}")
    if name in columns.of_records:
        return columns.of_records[name]
    missing = time_spec.get("missingValue")
    if time_format not in TIME_TYPES:
        columns.require_transform(f"a schema cannot parse the format {time_spec['format']!r}; {FUNCTION}")
    if missing is not None:
        columns.require_transform(f"'missingValue' is {missing!r}, but a schema cannot fill in values; {FUNCTION}")
    if name not in columns.computed and name != NO_SUCH_COLUMN:
        columns.add_time(name, time_format, is_required=missing is None)
    return TIME if TIME in columns.computed else name


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
    notes = [DISCOVERED] if is_discovering else []
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
