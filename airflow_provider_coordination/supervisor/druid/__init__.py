"""Translation of specs of Druid's Kinesis supervisor into specs of this package.

Each field is copied, translated, left for the user to configure manually, or not applicable. A field that this package
does not support or does not know is an error. No field is ignored silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.kinesis.positions import LATEST
from airflow_provider_coordination.supervisor.druid import fields
from airflow_provider_coordination.supervisor.druid.columns import (
    Columns,
    add_dimensions,
    add_metrics,
    add_time,
    read_format,
)
from airflow_provider_coordination.supervisor.druid.filters import FUNCTION, TIME, Filters, columns_in
from airflow_provider_coordination.supervisor.druid.rows import (
    DruidField,
    FieldOutcome,
    Row,
    UnsupportedFieldError,
    by_name,
    whole_number,
    yes_or_no,
)
from airflow_provider_coordination.supervisor.spec import VERSION, IngestionSpec
from airflow_provider_coordination.supervisor.spec_keys import TOP_LEVEL_KEYS

PARTS = ("ioConfig", "dataSchema", "tuningConfig")
"""The parts of a spec, in the order of translation: the columns depend on the format of the payloads."""
KNOWN = by_name(fields.FIELDS)


@dataclass(frozen=True, kw_only=True)
class DruidTranslation:
    """The translation of a Druid spec.

    :param spec: the translated spec, a JSON object for `IngestionSpec.read`.
    :param rows: the translation of each field.
    """

    spec: Mapping[str, Any]
    rows: tuple[Row, ...]

    @property
    def manual(self) -> tuple[Row, ...]:
        """The fields that the user must configure manually."""
        return tuple(row for row in self.rows if row.outcome is FieldOutcome.MANUAL)


def from_druid(given: Mapping[str, Any], *, lake: str, transform: str | None = None) -> DruidTranslation:
    """Translate a spec of Druid's Kinesis supervisor.

    :param given: the spec in Druid's format.
    :param lake: the folder, a path or URI, in which the dataset gets a folder of its name; bad records go to
        `_bad/<name>` in it.
    :param transform: `module:function` of a transform that does what a schema and a predicate cannot.
    :raises ConfigurationError: naming every field that this package does not support or know, with the remedy.
    """
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"spec of Druid: expected an object; got {type(given).__name__}")
    translation = _Translation(lake.rstrip("/"), transform)
    translation.translate(given)
    return translation.result()


class _Translation:
    """A translation in progress.

    :param lake: see `from_druid`.
    :param transform: see `from_druid`.
    """

    def __init__(self, lake: str, transform: str | None) -> None:
        self._lake = lake
        self._transform = transform
        self._columns = Columns()
        self._is_parsed = True
        self._time = ""
        self._given: dict[str, Any] = {}
        self._rows: list[Row] = []
        self.spec: dict[str, Any] = {}

    def translate(self, given: Mapping[str, Any]) -> None:
        """Translate every field."""
        self._given = dict(_flattened(given))
        self._put("version", VERSION)
        self._put("reads.kinesis.streams", None)
        for name, value in self._given.items():
            self._field(name, value)
        self._put_defaults()

    def result(self) -> DruidTranslation:
        """Return the translation.

        :raises ConfigurationError: if a field is rejected, or the result is not a valid spec.
        """
        if rejected := [row for row in self._rows if row.outcome is FieldOutcome.REJECTED]:
            raise ConfigurationError(
                "spec of Druid: " + "; ".join(f"field {row.field!r}: {row.note}" for row in rejected)
            )
        IngestionSpec.read(self.spec)
        spec = {name: self.spec[name] for name in TOP_LEVEL_KEYS if name in self.spec}
        return DruidTranslation(spec=spec, rows=tuple(self._rows))

    def _field(self, name: str, value: Any) -> None:
        known = KNOWN.get(name)
        if known is None:
            self._unknown(name)
            return
        if value is None and name != "ioConfig.stream":
            return
        try:
            row = self._translators[name](known, value) if name in self._translators else self._plain(known, value)
        except UnsupportedFieldError as error:
            self._reject(name, str(error))
        else:
            if row is not None:
                self._rows.append(row)

    def _unknown(self, name: str) -> None:
        """Add the row of a field that is not known at its path. Druid ignores a field in the wrong section."""
        part, _, last = name.rpartition(".")
        others = [each for each in KNOWN if each.rpartition(".")[2] == last and part in (*PARTS, "")]
        if not others:
            self._reject(name, "it is unknown; remove it, or see docs/druid.md for the known fields")
        elif KNOWN[others[0]].outcome is FieldOutcome.NOT_APPLICABLE:
            note = f"Druid ignores it here; it belongs to `{others[0]}`. {KNOWN[others[0]].note}"
            self._rows.append(Row(field=name, outcome=FieldOutcome.NOT_APPLICABLE, note=note))
        else:
            self._reject(name, f"Druid ignores it here; move it to {others[0]!r}, or remove it")

    def _plain(self, field: DruidField, value: Any) -> Row:
        if field.value is not None:
            made = field.value(value)
            if made is not None and field.target not in ("", fields.READS, fields.OF_AUTO_SCALE):
                self._put(field.target, made)
        return field.row

    @property
    def _translators(self) -> Mapping[str, Callable[[DruidField, Any], Row | None]]:
        return {
            "suspended": lambda field, value: field.row if yes_or_no(value) else None,
            "dataSchema.dataSource": self._data_source,
            "dataSchema.timestampSpec": self._timestamp,
            "dataSchema.dimensionsSpec": self._dimensions,
            "dataSchema.metricsSpec": self._metrics,
            "dataSchema.transformSpec": self._transforms,
            "ioConfig.inputFormat": self._input_format,
            "ioConfig.endpoint": self._endpoint,
            "ioConfig.boundedStreamConfig": self._bounds,
            "tuningConfig.maxParseExceptions": self._max_parse_exceptions,
        }

    def _data_source(self, field: DruidField, value: Any) -> Row:
        if not isinstance(value, str) or not value:
            raise UnsupportedFieldError(f"it must be the name of a data source; got {value!r}")
        self._put("source", value)
        return field.row

    def _timestamp(self, field: DruidField, value: Any) -> Row:
        self._time = add_time(self._columns, value, has_transform=self._transform is not None)
        return field.row

    def _dimensions(self, field: DruidField, value: Any) -> Row:
        if add_dimensions(self._columns, value):
            return field.row
        note = "Druid discovers dimensions in the records. Add those that you need to `schema`; `data` has all of them."
        return Row(field=field.name, outcome=FieldOutcome.MANUAL, target="schema", note=note)

    def _metrics(self, field: DruidField, value: Any) -> Row:
        add_metrics(self._columns, value, has_transform=self._transform is not None)
        return field.row

    def _input_format(self, field: DruidField, value: Any) -> Row:
        if read_format(self._columns, value, has_transform=self._transform is not None):
            return field.row
        self._is_parsed = False
        return Row(
            field=field.name,
            outcome=FieldOutcome.TRANSLATED,
            target="transform",
            note="Your transform splits the payloads.",
        )

    def _transforms(self, field: DruidField, value: Any) -> Row:
        if not isinstance(value, Mapping) or not set(value) <= {"filter", "transforms"}:
            raise UnsupportedFieldError(f"it must be an object of 'filter' and 'transforms'; got {value!r}")
        transforms = value.get("transforms")
        if not isinstance(transforms, list | None):
            raise UnsupportedFieldError(f"'transforms' must be a list; got {transforms!r}")
        if transforms and self._transform is None:
            names = [str(each.get("name")) if isinstance(each, Mapping) else repr(each) for each in transforms]
            raise UnsupportedFieldError(
                f"'transforms' computes the columns {', '.join(names)} with expressions; {FUNCTION}"
            )
        if value.get("filter") is not None:
            for name in columns_in(value["filter"]):
                self._columns.add(name, "STRING")
            if (
                TIME in columns_in(value["filter"])
                and self._columns.types.get(self._time) == "BIGINT"
                and not self._columns.event_time
            ):
                raise UnsupportedFieldError(f"the filter compares {TIME!r}, which is in nanoseconds; {FUNCTION}")
            renamed = {**self._columns.of_records, TIME: self._time}
            self._put("writes.where", Filters(self._columns.filterable_types, renamed).predicate(value["filter"]))
        return field.row

    def _endpoint(self, field: DruidField, value: Any) -> Row:
        if (found := fields.AWS_ENDPOINT.fullmatch(str(value))) is not None:
            if self._given.get("ioConfig.region") is None:
                self._put(field.target, found["region"])
            return field.row
        note = f"`endpoint_url`: {value}."
        return Row(field=field.name, outcome=FieldOutcome.MANUAL, target=fields.AWS_CONNECTION, note=note)

    def _bounds(self, field: DruidField, value: Any) -> Row:
        assert field.value is not None
        self._put(field.target, field.value(value))
        is_terminated = value.get("terminateOnCompletion")
        self._put("supervise.terminate_when_done", is_terminated is None or yes_or_no(is_terminated))
        if value.get("taskCount") is not None:
            self._put("supervise.task_count", whole_number(value["taskCount"]))
        return field.row

    def _max_parse_exceptions(self, field: DruidField, value: Any) -> Row:
        reports = self._given.get("tuningConfig.reportParseExceptions")
        return field.row if reports is not None and yes_or_no(reports) else self._plain(field, value)

    def _put_defaults(self) -> None:
        """Set the fields that depend on several others, and defaults of Druid that differ from this package's."""
        if (
            self._given.get("ioConfig.useEarliestSequenceNumber") is None
            and "bounds" not in self.spec["reads"]["kinesis"]
        ):
            self._put("reads.kinesis.initial_position", LATEST)
        if "auto_scale" in self.spec.get("supervise", {}):
            self.spec["supervise"]["auto_scale"].setdefault("lag_aggregate", "sum")
        if not any(f"ioConfig.{name}" in self._given for name in ("region", "endpoint")):
            self._put("reads.kinesis.region_name", fields.DEFAULT_REGION)
        supervise = self.spec.get("supervise", {})
        if rejecting := [name for name in self._given if "MessageRejection" in name and self._given[name] is not None]:
            if self._columns.event_time:
                supervise["event_time"] = self._columns.event_time
            else:
                self._reject(
                    rejecting[0],
                    f"records are rejected by a column of 'schema' that is a time, but the time is {self._time!r}; "
                    "remove the field, and leave such records out in a transform",
                )
        source = self.spec.get("source", "")
        where = self.spec.pop("writes", {}).get("where")
        sink = {"path": f"{self._lake}/{source}", **({} if where is None else {"where": where})}
        self.spec["writes"] = [{"parquet": sink}]
        self._put("on_bad_records.dead_letter_path", f"{self._lake}/_bad/{source}")
        schema = self._columns.ddl if self._is_parsed else None
        formats = self._columns.time_formats or None
        for name, value in (
            ("schema", schema),
            ("time_formats", formats if schema else None),
            ("transform", self._transform),
        ):
            if value is not None:
                self.spec[name] = value
        if not source:
            self._reject("dataSchema.dataSource", "it is missing; give the name of the data source")
        if not self.spec["reads"]["kinesis"]["streams"]:
            self._reject("ioConfig.stream", "it is missing; give the name of the stream")

    def _put(self, target: str, value: Any) -> None:
        *above, name = target.split(".")
        where = self.spec
        for each in above:
            where = where.setdefault(each, {})
        where[name] = value

    def _reject(self, field: str, note: str) -> None:
        self._rows.append(Row(field=field, outcome=FieldOutcome.REJECTED, note=note))


def _flattened(given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a spec by path, in the order of translation."""
    inner = given.get("spec")
    whole = {**{name: value for name, value in given.items() if name != "spec"}, **_object("spec", inner or {})}
    parts = {part: dict(_object(part, whole.get(part) or {})) for part in PARTS}
    yield from ((name, value) for name, value in whole.items() if name not in PARTS)
    yield from _of_parser(parts)
    for name in ("timestampSpec", "dimensionsSpec"):
        parts["dataSchema"].setdefault(name, {})
    scaler = _object("ioConfig.autoScalerConfig", parts["ioConfig"].get("autoScalerConfig") or {})
    for part, fields_of_part in parts.items():
        for name in sorted(fields_of_part, key=_order):
            yield f"{part}.{name}", fields_of_part[name]
    if str(scaler.get("enableTaskAutoScaler")).lower() == "true":
        yield from ((f"{fields.AUTO_SCALE}.{name}", value) for name, value in scaler.items())


def _order(name: str) -> int:
    """Return the rank of a field: the time is the first column, and filters use the columns added before."""
    return {"timestampSpec": 0, "dimensionsSpec": 1, "transformSpec": 3}.get(name, 2)


def _of_parser(parts: dict[str, dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield `parser`, the earlier form of a data schema, and move its fields to their current paths."""
    parser = parts["dataSchema"].pop("parser", None)
    if parser is None:
        return
    parse_spec = _object("dataSchema.parser.parseSpec", _object("dataSchema.parser", parser).get("parseSpec") or {})
    for name in ("timestampSpec", "dimensionsSpec"):
        if name in parse_spec:
            parts["dataSchema"].setdefault(name, parse_spec[name])
    kept = {
        name: value for name, value in parse_spec.items() if name not in ("timestampSpec", "dimensionsSpec", "format")
    }
    parts["ioConfig"].setdefault("inputFormat", {"type": parse_spec.get("format", "json"), **kept})
    yield "dataSchema.parser", parser


def _object(what: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"spec of Druid: field {what!r} must be an object; got {value!r}")
    return value
