"""Checks of a spec at its submission: against what its source has read, a sample of its data, and other supervisors.

A spec that leaves what partitions are about is refused, because jobs could not read them. So is a schema that would
reject every record. What may be intended is a warning.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.machinery import PathFinder
from itertools import product
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError, ProgressError
from airflow_provider_coordination.coordination.partition import UNFINISHED, Partition
from airflow_provider_coordination.coordination.source_claim import (
    SourceClaim,
    as_stored,
    claimed,
    location_differences,
)
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.sources.reset import ABOUT_PREVIOUS_DATA, how_to_forget, kind_of_stored, left_of
from airflow_provider_coordination.spark.payload_schema import (
    AUTO,
    ISO,
    MILLIS,
    SECONDS,
    TIME_FORMATS,
    UNITS,
    columns_of,
    required_columns_of,
    time_pattern,
)
from airflow_provider_coordination.spark.sink_settings import normalized_location
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.spec_values import without_secrets


@dataclass(frozen=True, kw_only=True)
class Location:
    """Where a source is read from.

    :param kind: the kind of source.
    :param location: see `Reads.reads_from`.
    :param parts: the names of its parts, such as streams; empty if it has none, or if they are unknown.
    """

    kind: str
    location: Mapping[str, Any]
    parts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, spec: IngestionSpec) -> Location:
        """Return where a spec reads from."""
        location = as_stored(getattr(spec.ingestion.reads, "reads_from", {}))
        return cls(kind=spec.ingestion.reads.kind, location=location, parts=frozenset(parts_of(spec)))


def parts_of(spec: IngestionSpec) -> Sequence[str]:
    """Return the names of the parts of the source that are reset as a whole, such as streams."""
    parts: Sequence[str] = getattr(spec.ingestion.reads, "parts", ())
    return parts


def check_reads(
    view: SourceView, last: Mapping[str, Any] | None, spec: IngestionSpec, *, is_terminated: bool = False
) -> list[str]:
    """Check that a spec still reads what the partitions of its source are about; return warnings.

    :param view: an initialized view of the source.
    :param last: the last spec of the source, as it was written; None if there is none.
    :param is_terminated: whether its supervisor is terminated.
    :raises ConfigurationError: if partitions, or the state of the supplier, are about something else.
    """
    before, now = _location_before(view, last), Location.of(spec)
    if left := _left(view, before, now):
        raise ConfigurationError(
            f"spec: field 'reads' no longer names {', '.join(left)}, which source {view.source!r} has read. "
            f"{ABOUT_PREVIOUS_DATA}; keep what it reads, or give the spec another 'source', or "
            + (how_to_forget(view.source) if last is None else _how_to_forget(view, is_terminated=is_terminated))
        )
    if before is None or now.parts or before.location == now.location or view.is_empty():
        return []
    return [
        f"field 'reads' changes: {', '.join(location_differences(now.location, before.location))}; partitions that "
        "exist are still delivered, and what the source remembers, such as finished scans, stays; to begin from the "
        "start, give another 'source'"
    ]


def _how_to_forget(view: SourceView, *, is_terminated: bool) -> str:
    """Return the remedy that keeps the name of a source with a supervisor."""
    is_stopped = is_terminated or view.suspensions.get() is not None
    suspend = "" if is_stopped else f"run 'airflow-coordination supervisor suspend {view.source} --reason REASON', and "
    return (
        f"keep the name and forget what was read: {suspend}once its jobs have ended, run 'airflow-coordination "
        f"supervisor reset {view.source} --forget', and submit the spec again"
        + ("" if is_terminated else ", then resume")
    )


def _location_before(view: SourceView, last: Mapping[str, Any] | None) -> Location | None:
    """Return where the source was read from, by its last spec or by the DAG that read it; None if unknown."""
    with suppress(ConfigurationError):  # written by another version of the package
        if last is not None:
            return Location.of(IngestionSpec.read(last))
        if (item := claimed(view)) is not None:
            claim = SourceClaim.of(item)
            return Location(kind=claim.kind, location=claim.location)
    return None


def _left(view: SourceView, before: Location | None, now: Location) -> list[str]:
    """Return what the source has read, and a spec does not read any more."""
    if before is not None:
        if left := left_of(before.kind, before.location, now.kind, now.location):
            return [] if view.is_empty() else left
        if before.parts and now.parts >= before.parts:
            return []
    if not now.parts:
        return []
    held = {_part_of(partition) for partition in view.partitions(*UNFINISHED)}
    unknown = before.parts if before is not None and None in held else frozenset()
    return sorted(repr(part) for part in (held | unknown) - now.parts if part is not None)


def _part_of(partition: Partition) -> str | None:
    """Return the part of the source that a partition belongs to, such as a stream; None if that is unknown."""
    try:
        return kind_of_stored(partition).group_of(partition)
    except ProgressError:
        return None


TEXTS = frozenset({"STRING", "CHAR", "CHARACTER", "VARCHAR", "BINARY"})
WHOLE = frozenset({"BIGINT", "BYTE", "INT", "INTEGER", "LONG", "SHORT", "SMALLINT", "TINYINT"})
NUMBERS = frozenset({"DEC", "DECIMAL", "DOUBLE", "FLOAT", "NUMERIC", "REAL"})
TIMES = frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"})
DATE = re.compile(r"\s*[-+]?\d{4,}(-\d{1,2}(-\d{1,2}([T ].*)?)?)?\s*")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
MAX_SHOWN = 100
APPLICATION_FIELDS = ("coordination_conn_id", "spark_archive")
"""The fields of `tuning` that belong to a Spark application, beside those of `tuning.spark`."""
TABLE_CONNECTIONS = ("conn_id", "catalog_conn_id", "catalog", "catalog_name")
"""The fields of sinks that say where a table is."""
MICROSECONDS_PER_YEAR = 31_556_952 * 10**6
PLAUSIBLE_MICROSECONDS = (2201 - 1970) * MICROSECONDS_PER_YEAR


def check_fits(schema: str, payloads: Sequence[bytes], time_formats: Mapping[str, str] | None = None) -> None:
    """Check that at least one payload matches a schema. If only some do not match, jobs treat them as bad records.

    :param schema: the schema as DDL.
    :param payloads: a sample of the data; an empty sample matches.
    :param time_formats: the formats of TIMESTAMP columns, by name.
    :raises ConfigurationError: if no payload matches; names the column, its value and the remedy.
    """
    mismatches = [_mismatch(schema, payload, time_formats or {}) for payload in payloads]
    if mismatches and None not in mismatches:
        raise ConfigurationError(
            f"spec: field 'schema' matches none of {len(mismatches)} records: {mismatches[0]}; correct 'schema', or "
            "omit it and parse the column 'data' in a transform"
        )


def implausible_times(
    schema: str,
    payloads: Sequence[bytes],
    time_formats: Mapping[str, str] | None = None,
    event_time: str | None = None,
) -> list[str]:
    """Return a warning for each column whose numbers are times outside the years 1970 to 2200.

    :param schema: the schema as DDL.
    :param payloads: a sample of the data.
    :param time_formats: the formats of TIMESTAMP columns, by name.
    :param event_time: the column of the event time; an integer is in milliseconds.
    """
    problems: dict[str, str] = {}
    objects = list(filter(None, map(_object_in, payloads)))
    for name, kind in columns_of(schema).items():
        unit = _unit_of_times(kind, (time_formats or {}).get(name), is_event_time=name == event_time)
        for value in [] if unit is None else [each.get(name) for each in objects]:
            number = _as_number(value)
            if number is not None and unit is not None and not 0 <= number * unit < PLAUSIBLE_MICROSECONDS:
                year = 1970 + int(number * unit // MICROSECONDS_PER_YEAR)
                problems.setdefault(
                    name,
                    f"column {name!r} has the time {_shown(json.dumps(value))}, which is in about the year {year}: "
                    f"check its unit; a TIMESTAMP may be in {', '.join(map(repr, TIME_FORMATS))} by 'time_formats'",
                )
    return list(problems.values())


def _unit_of_times(kind: str, time_format: str | None, *, is_event_time: bool) -> int | None:
    """Return the unit of the numbers of a column in microseconds; None if they are no times."""
    if kind in WHOLE:
        return UNITS[MILLIS] if is_event_time else None
    return UNITS.get(time_format or SECONDS) if kind in TIMES else None


def _object_in(payload: bytes) -> Mapping[str, Any] | None:
    """Return the JSON object that a payload is; None if it is none."""
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, Mapping) else None


def _as_number(value: Any) -> float | None:
    """Return the finite number that a value is, also as text; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, int):
        return value
    number = float(value) if isinstance(value, float) or NUMBER.fullmatch(value) else math.nan
    return number if math.isfinite(number) else None


def _mismatch(schema: str, payload: bytes, time_formats: Mapping[str, str]) -> str | None:
    """Return why a payload does not match; None if it matches, as far as can be checked without Spark."""
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError):
        return f"the payload is not JSON: {_shown(payload.decode(errors='replace'))}"
    if not isinstance(value, Mapping):
        return f"the payload is not a JSON object: {_shown(payload.decode(errors='replace'))}"
    columns = columns_of(schema)
    if not any(name in value for name in columns):
        return f"the payload has none of the columns; its fields are {_shown(', '.join(map(repr, value)))}"
    return next(_mismatches(columns, required_columns_of(schema), value, time_formats), None)


def _mismatches(
    columns: Mapping[str, str], required: frozenset[str], value: Mapping[str, Any], time_formats: Mapping[str, str]
) -> Iterator[str]:
    for name, kind in columns.items():
        field_value = value.get(name)
        if field_value is None and name in required:
            yield f"column {name!r} is NOT NULL, but the record has no value"
        elif field_value is not None and not _is_of(kind, field_value, time_formats.get(name)):
            yield f"column {name!r} has type {kind}, but the record has {_shown(json.dumps(field_value))}"


def _is_of(kind: str, value: Any, time_format: str | None) -> bool:
    number = _as_number(value)
    is_number = number is not None
    if kind in WHOLE:
        return number is not None and number == int(number)
    if kind in NUMBERS:
        return is_number
    if time_format not in (None, *TIME_FORMATS):
        return _has_pattern(str(value), str(time_format))
    if time_format is not None:
        is_text = isinstance(value, str) and DATE.fullmatch(value) is not None
        return (is_number and time_format != ISO) or (is_text and time_format in (ISO, AUTO))
    if kind == "BOOLEAN":
        return isinstance(value, bool)
    if kind in TIMES:
        return DATE.fullmatch(value) is not None if isinstance(value, str) else is_number
    if kind == "ARRAY":
        return isinstance(value, list)
    if kind in ("STRUCT", "MAP"):
        return isinstance(value, Mapping)
    return True


def _has_pattern(text: str, pattern: str) -> bool:
    try:
        time_pattern(pattern).instant(text)
    except (ValueError, OverflowError):
        return False
    return True


def _shown(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def check_group(spec: IngestionSpec, others: Mapping[str, IngestionSpec]) -> None:
    """Check that the members of a spec's group can share an application.

    :param others: the current specs of the other supervisors of the store, by source.
    :raises ConfigurationError: naming the other source, the field and both values.
    """
    group = spec.tuning.group
    for source, other in others.items():
        if not group or other.tuning.group != group:
            continue
        mine, theirs = _of_application(spec), _of_application(other)
        for field in sorted(mine.keys() | theirs.keys()):
            if mine.get(field) != theirs.get(field):
                raise ConfigurationError(
                    f"spec: field {field!r} is {_value(field, mine)}, but source {source!r} of the same group "
                    f"{group!r} has {_value(field, theirs)}: members of a group share one Spark application; give "
                    "both the same value, or give this source another 'tuning.group'"
                )
        for (field, shown, target), (_, _, same) in product(_targets(spec), list(_targets(other))):
            if target == same:
                raise ConfigurationError(
                    f"spec: field {field!r} is {shown!r}, which source {source!r} of the same group "
                    f"{group!r} writes as well: give one of them another location, or another 'tuning.group'"
                )


def _of_application(spec: IngestionSpec) -> dict[str, Any]:
    """Return what a spec says of the Spark application, by field."""
    tuning = spec.tuning
    values: dict[str, Any] = {f"tuning.{name}": getattr(tuning, name) for name in APPLICATION_FIELDS}
    arguments = tuning.spark.arguments()
    conf = arguments.pop("conf")
    values |= {f"tuning.spark.{name}": value for name, value in arguments.items()}
    values |= {f"tuning.spark.conf.{name}": value for name, value in conf.items()}
    return values


def _targets(spec: IngestionSpec) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield the fields of the tables and folders that a spec writes, their values, and what is equal for equal ones.

    What only connections say is compared once a job starts, see `GroupTargets`.
    """
    for number, sink in enumerate(spec.sinks):
        if (table := getattr(sink, "table", None)) is not None:
            connections = [str(getattr(sink, name, None)) for name in TABLE_CONNECTIONS]
            yield f"writes[{number}].table", str(table), (sink.kind, *connections, str(table))
        elif (folder := sink.folder) is not None:
            yield f"writes[{number}].{sink.folder_field}", folder, ("", normalized_location(folder))


def _value(field: str, values: Mapping[str, Any]) -> str:
    return _shown(repr(without_secrets({field: values[field]})[field])) if values.get(field) is not None else "missing"


def warnings_of(spec: IngestionSpec, others: Mapping[str, IngestionSpec]) -> Iterator[str]:
    """Yield the warnings about a spec, each with its remedy.

    :param others: the current specs of the other supervisors of the store, by source.
    """
    yield from _about_task_count(spec)
    yield from _about_transform(spec)
    for source, other in others.items():
        yield from _about_paths(spec, source, other)


def _about_task_count(spec: IngestionSpec) -> Iterator[str]:
    scaling, count = spec.supervise.auto_scale, spec.supervise.task_count
    if scaling is None or scaling.task_count_start is not None or count == 1:  # 1 is the default
        return
    minimum, maximum = scaling.task_count_min, scaling.task_count_max
    if not minimum <= count <= maximum:
        yield (
            f"field 'supervise.task_count' is {count}, outside of 'auto_scale', which allows {minimum} to {maximum} "
            f"jobs: it starts with {min(max(count, minimum), maximum)}; change one of them"
        )


def _about_transform(spec: IngestionSpec) -> Iterator[str]:
    transform = spec.ingestion.transform
    if transform is None or spec.tuning.spark.py_files:
        return
    module = transform.partition(":")[0]
    if not _is_found(module):
        yield (
            f"field 'transform' is {transform!r}, and module {module!r} is not found here: make sure that jobs "
            "find it, for example with 'tuning.spark.py_files'"
        )


def _is_found(module: str) -> bool:
    """Return whether a module is found, without importing it or its packages."""
    search: Any = None
    *packages, last = module.split(".")
    for name in packages:
        module_spec = PathFinder.find_spec(name, search)
        if module_spec is None or module_spec.submodule_search_locations is None:
            return False
        search = list(module_spec.submodule_search_locations)
    return PathFinder.find_spec(last, search) is not None


def _about_paths(spec: IngestionSpec, source: str, other: IngestionSpec) -> Iterator[str]:
    for (field, path), (_, theirs) in product(_paths(spec), list(_paths(other))):
        mine, its = (f"{normalized_location(each).rstrip('/')}/" for each in (path, theirs))
        if mine.startswith(its) or its.startswith(mine):
            relation = "also written" if mine == its else "below" if mine.startswith(its) else "above"
            by = "" if mine == its else f" {theirs!r}, which is written"
            yield (
                f"field {field!r} is {path!r}, {relation}{by} by the supervisor of source {source!r}; if that is not "
                "intended, give another path"
            )


def _paths(spec: IngestionSpec) -> Iterator[tuple[str, str]]:
    """Yield the paths that a spec names, with their fields."""
    named = [(f"writes[{number}].path", getattr(each, "path", None)) for number, each in enumerate(spec.sinks)]
    named.append(("landing_path", spec.ingestion.landing_path))
    named.append(("bad_records.dead_letter_path", spec.ingestion.bad_records.dead_letter_path))
    yield from ((field, path) for field, path in named if isinstance(path, str) and path)
