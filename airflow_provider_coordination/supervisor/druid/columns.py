"""Translation of a Druid data schema into the schema of a payload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_coordination.sources.kinesis.columns import RECORD_COLUMNS
from airflow_provider_coordination.spark.time_formats import AUTO, ISO, MICROS, MILLIS, SECONDS
from airflow_provider_coordination.supervisor.druid.filters import FUNCTION, TIME, columns_in, identifier
from airflow_provider_coordination.supervisor.druid.rows import UnsupportedFieldError, yes_or_no

DIMENSION_TYPES = {
    "string": "STRING",
    "auto": "STRING",
    "json": "STRING",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
}
"""The Spark type of a dimension, by its type in Druid in lower case."""
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
}
"""The Spark type of a metric's input, by the prefix of the metric's type; other inputs are strings."""
SKETCH_SUFFIXES = ("Merge", "Fold")
"""The ends of the types of metrics whose inputs are sketches, as text."""
PARTITION_KEY = "partition_key"
ARRIVAL = "approximate_arrival_timestamp"
KINESIS_COLUMNS = {
    "partitionKeyColumnName": ("kinesis.partitionKey", PARTITION_KEY),
    "timestampColumnName": ("kinesis.timestamp", ARRIVAL),
}
"""The columns of Druid's format `kinesis` by the fields that name them: their default names, and the columns that every
record has here."""
RESERVED = frozenset((*RECORD_COLUMNS, "_error"))
"""The columns that every record has."""


@dataclass
class Columns:
    """The columns of a schema under construction.

    :param types: the type of each column, by name.
    :param required: the columns that must not be null.
    :param nested: the path in the payload of each column whose value is nested, by name.
    :param time_formats: the format of the time column, by name.
    :param of_records: the columns that every record has, by their names in Druid.
    :param event_time: the column of the schema that is an instant for this package; empty if there is none.
    """

    types: dict[str, str] = field(default_factory=dict)
    required: set[str] = field(default_factory=set)
    nested: dict[str, str] = field(default_factory=dict)
    time_formats: dict[str, str] = field(default_factory=dict)
    of_records: dict[str, str] = field(default_factory=dict)
    event_time: str = ""

    def add(self, name: str, kind: str) -> None:
        """Add a column, unless it exists.

        :raises UnsupportedFieldError: if records cannot have it.
        """
        if name in self.types or name in self.nested or name in self.of_records or name == TIME:
            return
        self._add(name, kind)

    def add_time(self, name: str, time_format: str) -> None:
        """Add the column of the time, which is required.

        :param time_format: its format in Druid.
        :raises UnsupportedFieldError: if records cannot have it.
        """
        self._add(name, TIME_TYPES.get(time_format, "STRING"))
        self.required.add(name)
        if time_format in TIME_FORMATS:
            self.time_formats[name] = TIME_FORMATS[time_format]
        if time_format in TIME_FORMATS or time_format == MILLIS:
            self.event_time = name

    def _add(self, name: str, kind: str) -> None:
        if name.lower() in RESERVED:
            raise UnsupportedFieldError(
                f"every record has a column {name!r} already; write a function that parses the column 'data' into "
                "columns with other names, and name it in 'transform'"
            )
        for other in self.types:
            if other.lower() == name.lower():
                raise UnsupportedFieldError(
                    f"{name!r} and {other!r} are one column for Spark; write a function that renames one of them, and "
                    "name it in 'transform'"
                )
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


def add_time(columns: Columns, spec: Any, *, has_transform: bool) -> str:
    """Add the time column.

    :param spec: Druid's `timestampSpec`.
    :param has_transform: whether the user gives a transform for what a schema cannot express.
    :returns: the name of the column.
    :raises UnsupportedFieldError: if a schema cannot express it.
    """
    given = _object("timestampSpec", spec)
    _check_keys("timestampSpec", given, ("column", "format", "missingValue"))
    name, time_format = given.get("column", "timestamp"), str(given.get("format") or "auto").lower()
    if not isinstance(name, str) or not name:
        raise UnsupportedFieldError(f"'column' must be the name of a column; got {name!r}")
    if name in columns.of_records:
        return columns.of_records[name]
    missing = given.get("missingValue")
    if not has_transform and time_format not in TIME_TYPES:
        raise UnsupportedFieldError(f"a schema cannot parse the format {given['format']!r}; {FUNCTION}")
    if not has_transform and missing is not None:
        raise UnsupportedFieldError(f"'missingValue' is {missing!r}, but a schema cannot fill in values; {FUNCTION}")
    columns.add_time(name, time_format)
    if missing is not None:
        columns.required.discard(name)
    return name


def add_dimensions(columns: Columns, spec: Any) -> bool:
    """Add a column for each dimension.

    :param spec: Druid's `dimensionsSpec`.
    :returns: whether it lists every dimension; otherwise Druid discovers dimensions in the records.
    :raises UnsupportedFieldError: if a schema cannot express it.
    """
    given = _object("dimensionsSpec", spec)
    _check_keys(
        "dimensionsSpec",
        given,
        (
            "dimensions",
            "dimensionExclusions",
            "spatialDimensions",
            "includeAllDimensions",
            "useSchemaDiscovery",
            "forceSegmentSortByTime",
        ),
    )
    if given.get("spatialDimensions"):
        raise UnsupportedFieldError(
            "'spatialDimensions' belong to Druid's indexes: list their columns as dimensions of type double"
        )
    dimensions = _list("dimensions", given.get("dimensions"))
    for each in dimensions:
        if isinstance(each, str):
            columns.add(each, "STRING")
            continue
        if not isinstance(each, Mapping) or not isinstance(each.get("name"), str):
            raise UnsupportedFieldError(f"a dimension must be a name, or an object with a 'name'; got {each!r}")
        kind = str(each.get("type", "string")).lower()
        if kind not in DIMENSION_TYPES:
            raise UnsupportedFieldError(
                f"dimension {each['name']!r} is of type {each['type']!r}; the known types are "
                f"{', '.join(DIMENSION_TYPES)}"
            )
        columns.add(each["name"], DIMENSION_TYPES[kind])
    return bool(dimensions) and not any(
        yes_or_no(given.get(name) or False) for name in ("includeAllDimensions", "useSchemaDiscovery")
    )


def add_metrics(columns: Columns, specs: Any, *, has_transform: bool) -> None:
    """Add the input columns of metrics.

    :param specs: Druid's `metricsSpec`.
    :param has_transform: whether the user gives a transform for what a schema cannot express.
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
        if metric.get("expression") is not None and not has_transform:
            raise UnsupportedFieldError(f"metric {metric.get('name')!r} is computed by an expression; {FUNCTION}")
        name = metric.get("fieldName")
        names = metric.get("fieldNames", metric.get("fields"))
        for column in [name] if isinstance(name, str) else _list("fieldNames", names):
            if isinstance(column, str):
                columns.add(column, _type_of_input(metric["type"]))
    for column in filtered:
        columns.add(column, "STRING")


def _type_of_input(kind: str) -> str:
    """Return the Spark type of the input of a metric."""
    if kind.endswith(SKETCH_SUFFIXES):
        return "STRING"
    return next((found for prefix, found in METRIC_TYPES.items() if kind.startswith(prefix)), "STRING")


def read_format(columns: Columns, given: Any, *, has_transform: bool) -> bool:
    """Read the format of payloads.

    :param given: Druid's `inputFormat`.
    :returns: whether a schema can parse the payloads.
    :raises UnsupportedFieldError: if it cannot, and the user gives no transform.
    """
    given = _object("inputFormat", given)
    kind = given.get("type")
    if kind == "kinesis":
        for name, (default, column) in KINESIS_COLUMNS.items():
            columns.of_records[str(given.get(name) or default)] = column
        return read_format(columns, given.get("valueFormat"), has_transform=has_transform)
    if kind != "json":
        if has_transform:
            return False
        raise UnsupportedFieldError(
            f"payloads are {kind!r}, but a schema only parses JSON; write a function that splits the column 'data' "
            "and name it in 'transform'"
        )
    flatten = _object("flattenSpec", given.get("flattenSpec") or {})
    for each in _list("fields", flatten.get("fields")):
        if not isinstance(each, Mapping):
            continue
        name = str(each.get("name"))
        expression = str(each.get("expr") or each.get("nodes") or name)
        if expression == name if each.get("type") == "root" else expression in _paths_of(name):
            continue
        if not has_transform:
            raise UnsupportedFieldError(
                f"field {name!r} is read from {expression!r}, but a schema only reads a field of its column's name; "
                "write a function that reads it, and name it in 'transform'"
            )
        columns.nested[name] = expression
    return True


def _paths_of(name: str) -> tuple[str, ...]:
    """Return the paths of a top-level field."""
    return (f"$.{name}", f".{name}", f"$['{name}']")


def _object(what: str, given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise UnsupportedFieldError(f"{what} must be an object; got {given!r}")
    return given


def _list(what: str, given: Any) -> list[Any]:
    """Return a list; an empty one if none is given."""
    if not isinstance(given, list | None):
        raise UnsupportedFieldError(f"{what} must be a list; got {given!r}")
    return given or []


def _check_keys(what: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in given:
        if name not in known:
            raise UnsupportedFieldError(
                f"{what} has the unknown field {name!r}; the known fields are {', '.join(known)}"
            )
