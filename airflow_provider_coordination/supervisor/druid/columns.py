"""Translation of a Druid data schema into the schema of a payload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_coordination.sources.kinesis.columns import RECORD_COLUMNS
from airflow_provider_coordination.supervisor.druid.filters import FUNCTION, TIME, identifier
from airflow_provider_coordination.supervisor.druid.rows import UnsupportedFieldError

DIMENSION_TYPES = {
    "string": "STRING",
    "auto": "STRING",
    "json": "STRING",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
}
"""The Spark type of a dimension, by its type in Druid in lower case."""
TIME_TYPES = {"auto": "TIMESTAMP", "iso": "TIMESTAMP", "posix": "TIMESTAMP", "millis": "BIGINT"}
"""The Spark type of the time column, by its format in Druid."""
METRIC_TYPES = {"long": "BIGINT", "double": "DOUBLE", "float": "FLOAT", "string": "STRING", "quantiles": "DOUBLE"}
"""The Spark type of a metric's input, by the prefix of the metric's type; other inputs are strings."""
RESERVED = frozenset((*RECORD_COLUMNS, "_error"))
"""The columns that every record has."""


@dataclass
class Columns:
    """The columns of a schema under construction.

    :param types: the type of each column, by name.
    :param required: the columns that must not be null.
    :param nested: the path in the payload of each column whose value is nested, by name.
    """

    types: dict[str, str] = field(default_factory=dict)
    required: set[str] = field(default_factory=set)
    nested: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, kind: str) -> None:
        """Add a column, unless it exists.

        :raises UnsupportedFieldError: if records cannot have it.
        """
        if name in self.types or name in self.nested or name == TIME:
            return
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
    name, time_format = given.get("column", "timestamp"), str(given.get("format") or "auto")
    if not isinstance(name, str) or not name:
        raise UnsupportedFieldError(f"'column' must be the name of a column; got {name!r}")
    kind = TIME_TYPES.get(time_format)
    missing = given.get("missingValue")
    if not has_transform and kind is None:
        raise UnsupportedFieldError(f"a schema cannot parse the format {time_format!r}; {FUNCTION}")
    if not has_transform and missing is not None:
        raise UnsupportedFieldError(f"'missingValue' is {missing!r}, but a schema cannot fill in values; {FUNCTION}")
    columns.add(name, kind or "STRING")
    if missing is None:
        columns.required.add(name)
    return name


def add_dimensions(columns: Columns, spec: Any) -> None:
    """Add a column for each dimension.

    :param spec: Druid's `dimensionsSpec`.
    :raises UnsupportedFieldError: if a schema cannot express it.
    """
    given = _object("dimensionsSpec", spec)
    _check_keys(
        "dimensionsSpec",
        given,
        ("dimensions", "dimensionExclusions", "spatialDimensions", "includeAllDimensions", "useSchemaDiscovery"),
    )
    if given.get("spatialDimensions"):
        raise UnsupportedFieldError(
            "'spatialDimensions' belong to Druid's indexes: list their columns as dimensions of type double"
        )
    for each in _list("dimensions", given.get("dimensions")):
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


def add_metrics(columns: Columns, specs: Any, *, has_transform: bool) -> None:
    """Add the input columns of metrics.

    :param specs: Druid's `metricsSpec`.
    :param has_transform: whether the user gives a transform for what a schema cannot express.
    :raises UnsupportedFieldError: if a schema cannot express it.
    """
    if not isinstance(specs, list):
        raise UnsupportedFieldError(f"it must be a list; got {specs!r}")
    for each in specs:
        metric = each
        while isinstance(metric, Mapping) and metric.get("type") == "filtered":
            metric = metric.get("aggregator")
        if not isinstance(metric, Mapping) or not isinstance(metric.get("type"), str):
            raise UnsupportedFieldError(f"a metric must be an object with a 'type'; got {each!r}")
        if metric.get("expression") is not None and not has_transform:
            raise UnsupportedFieldError(f"metric {metric.get('name')!r} is computed by an expression; {FUNCTION}")
        name = metric.get("fieldName")
        names = metric.get("fieldNames", metric.get("fields"))
        for column in [name] if isinstance(name, str) else _list("fieldNames", names):
            if isinstance(column, str):
                kind = metric["type"]
                columns.add(column, next((t for p, t in METRIC_TYPES.items() if kind.startswith(p)), "STRING"))


def read_format(columns: Columns, given: Any, *, has_transform: bool) -> bool:
    """Read the format of payloads.

    :param given: Druid's `inputFormat`.
    :returns: whether a schema can parse the payloads.
    :raises UnsupportedFieldError: if it cannot, and the user gives no transform.
    """
    given = _object("inputFormat", given)
    kind = given.get("type")
    if kind == "kinesis":
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
        if isinstance(each, str) or not isinstance(each, Mapping) or each.get("type") == "root":
            continue
        name, expression = str(each.get("name")), str(each.get("expr") or each.get("nodes"))
        if expression in (f"$.{name}", f".{name}", f"$['{name}']"):
            continue
        if not has_transform:
            raise UnsupportedFieldError(
                f"field {name!r} is nested, at {expression!r}, which a schema cannot read; write a function that reads "
                "it, and name it in 'transform'"
            )
        columns.nested[name] = expression
    return True


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
