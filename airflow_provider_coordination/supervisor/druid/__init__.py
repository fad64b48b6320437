"""Specs of Druid's Kinesis supervisor, as they stand, as specs of this package.

Each field is taken over, translated, said elsewhere by hand, or without meaning here; one that asks for what this
package does not do is an error. Nothing is passed over in silence.
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
    note_format,
)
from airflow_provider_coordination.supervisor.druid.filters import FUNCTION, Filters, columns_in
from airflow_provider_coordination.supervisor.druid.rows import DruidField, RefusedError, Row, Verdict, by_name
from airflow_provider_coordination.supervisor.spec import VERSION, IngestionSpec
from airflow_provider_coordination.supervisor.spec_keys import TOP

PARTS = ("ioConfig", "dataSchema", "tuningConfig")
"""The parts of a spec, in the order in which they are translated: columns follow from how payloads are written."""
KNOWN = by_name(fields.FIELDS)


@dataclass(frozen=True, kw_only=True)
class DruidTranslation:
    """A spec of Druid, translated.

    :param spec: the spec, a JSON object for `IngestionSpec.read`.
    :param rows: what became of each field.
    """

    spec: Mapping[str, Any]
    rows: tuple[Row, ...]

    @property
    def by_hand(self) -> tuple[Row, ...]:
        """What a person has to say elsewhere."""
        return tuple(row for row in self.rows if row.verdict is Verdict.BY_HAND)


def from_druid(given: Mapping[str, Any], *, lake: str, transform: str | None = None) -> DruidTranslation:
    """Translate a spec of Druid's Kinesis supervisor.

    :param given: the spec, as it is submitted to Druid.
    :param lake: the folder, a path or URI, below which the dataset gets a folder of its name; bad records go to
        `_bad/<name>` below it.
    :param transform: `module:function` of a transform that does what a schema and a predicate cannot.
    :raises ConfigurationError: naming every field that this package cannot do or does not know, and the remedy.
    """
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"spec of Druid: expected an object; got {type(given).__name__}")
    translation = _Translation(lake.rstrip("/"), transform)
    translation.translate(given)
    return translation.result()


class _Translation:
    """A translation on its way.

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

        :raises ConfigurationError: if a field is refused, or what came out is no spec.
        """
        if refused := [row for row in self._rows if row.verdict is Verdict.REFUSED]:
            raise ConfigurationError(
                "spec of Druid: " + "; ".join(f"field {row.field!r}: {row.note}" for row in refused)
            )
        IngestionSpec.read(self.spec)
        spec = {name: self.spec[name] for name in TOP if name in self.spec}
        return DruidTranslation(spec=spec, rows=tuple(self._rows))

    def _field(self, name: str, value: Any) -> None:
        known = KNOWN.get(name)
        if known is None:
            self._refuse(name, "it is not known; remove it, or see docs/druid.md for those that are")
            return
        if value is None and name != "ioConfig.stream":
            return
        try:
            row = self._translators[name](known, value) if name in self._translators else self._plain(known, value)
        except RefusedError as error:
            self._refuse(name, str(error))
        else:
            if row is not None:
                self._rows.append(row)

    def _plain(self, field: DruidField, value: Any) -> Row:
        if field.value is not None:
            made = field.value(value)
            if made is not None and field.place not in ("", fields.READS, fields.OF_AUTO_SCALE):
                self._put(field.place, made)
        return field.row

    @property
    def _translators(self) -> Mapping[str, Callable[[DruidField, Any], Row | None]]:
        return {
            "suspended": lambda field, value: field.row if value else None,
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
            raise RefusedError(f"it must be the name of a data source; got {value!r}")
        self._put("source", value)
        return field.row

    def _timestamp(self, field: DruidField, value: Any) -> Row:
        self._time = add_time(self._columns, value, has_transform=self._transform is not None)
        return field.row

    def _dimensions(self, field: DruidField, value: Any) -> Row:
        add_dimensions(self._columns, value)
        return field.row

    def _metrics(self, field: DruidField, value: Any) -> Row:
        add_metrics(self._columns, value, has_transform=self._transform is not None)
        return field.row

    def _input_format(self, field: DruidField, value: Any) -> Row:
        if note_format(self._columns, value, has_transform=self._transform is not None):
            return field.row
        self._is_parsed = False
        return Row(
            field=field.name, verdict=Verdict.TRANSLATED, place="transform", note="Your function splits payloads."
        )

    def _transforms(self, field: DruidField, value: Any) -> Row:
        if not isinstance(value, Mapping) or not set(value) <= {"filter", "transforms"}:
            raise RefusedError(f"it must be an object of 'filter' and 'transforms'; got {value!r}")
        transforms = value.get("transforms")
        if not isinstance(transforms, list | None):
            raise RefusedError(f"'transforms' must be a list; got {transforms!r}")
        if transforms and self._transform is None:
            names = [str(each.get("name")) if isinstance(each, Mapping) else repr(each) for each in transforms]
            raise RefusedError(f"'transforms' makes the columns {', '.join(names)} by expressions; {FUNCTION}")
        if value.get("filter") is not None:
            for name in columns_in(value["filter"]):
                self._columns.add(name, "STRING")
            self._put("writes.where", Filters(self._columns.types, self._time).predicate(value["filter"]))
        return field.row

    def _endpoint(self, field: DruidField, value: Any) -> Row:
        if (found := fields.AWS_ENDPOINT.fullmatch(str(value))) is not None:
            if self._given.get("ioConfig.region") is None:
                self._put(field.place, found["region"])
            return field.row
        note = f"`endpoint_url`: {value}."
        return Row(field=field.name, verdict=Verdict.BY_HAND, place=fields.AWS_CONNECTION, note=note)

    def _bounds(self, field: DruidField, value: Any) -> Row:
        assert field.value is not None
        self._put(field.place, field.value(value))
        self._put("supervise.terminate_when_done", value.get("terminateOnCompletion") is not False)
        if value.get("taskCount") is not None:
            self._put("supervise.task_count", value["taskCount"])
        return field.row

    def _max_parse_exceptions(self, field: DruidField, value: Any) -> Row:
        return field.row if self._given.get("tuningConfig.reportParseExceptions") is True else self._plain(field, value)

    def _put_defaults(self) -> None:
        """Put what follows from the whole, and where Druid's defaults are other than this package's."""
        if (
            self._given.get("ioConfig.useEarliestSequenceNumber") is None
            and "bounds" not in self.spec["reads"]["kinesis"]
        ):
            self._put("reads.kinesis.initial_position", LATEST)
        if "auto_scale" in self.spec.get("supervise", {}):
            self.spec["supervise"]["auto_scale"].setdefault("lag_aggregate", "sum")
        supervise = self.spec.get("supervise", {})
        if any("message_rejection" in name for name in supervise):
            supervise["event_time"] = self._time
        source = self.spec.get("source", "")
        where = self.spec.pop("writes", {}).get("where")
        sink = {"path": f"{self._lake}/{source}", **({} if where is None else {"where": where})}
        self.spec["writes"] = [{"parquet": sink}]
        self._put("on_bad_records.dead_letter_path", f"{self._lake}/_bad/{source}")
        for name, value in (("schema", self._columns.ddl if self._is_parsed else None), ("transform", self._transform)):
            if value is not None:
                self.spec[name] = value
        if not source:
            self._refuse("dataSchema.dataSource", "it is missing; name the data source")
        if not self.spec["reads"]["kinesis"]["streams"]:
            self._refuse("ioConfig.stream", "it is missing; name the stream")

    def _put(self, place: str, value: Any) -> None:
        *above, name = place.split(".")
        where = self.spec
        for each in above:
            where = where.setdefault(each, {})
        where[name] = value

    def _refuse(self, field: str, note: str) -> None:
        self._rows.append(Row(field=field, verdict=Verdict.REFUSED, note=note))


def _flattened(given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a spec by their places, in the order in which they are translated."""
    inner = given.get("spec")
    whole = {**{name: value for name, value in given.items() if name != "spec"}, **_object("spec", inner or {})}
    parts = {part: dict(_object(part, whole.get(part) or {})) for part in PARTS}
    yield from ((name, value) for name, value in whole.items() if name not in PARTS)
    yield from _of_parser(parts)
    parts["dataSchema"].setdefault("timestampSpec", {})
    scaler = _object("ioConfig.autoScalerConfig", parts["ioConfig"].get("autoScalerConfig") or {})
    for part, fields_of_part in parts.items():
        for name in sorted(fields_of_part, key=_turn):
            yield f"{part}.{name}", fields_of_part[name]
    if scaler.get("enableTaskAutoScaler"):
        yield from ((f"{fields.AUTO_SCALE}.{name}", value) for name, value in scaler.items())


def _turn(name: str) -> int:
    """Return when a field has its turn: the time is the first column, and a filter looks at those that are there."""
    return {"timestampSpec": 0, "dimensionsSpec": 1, "transformSpec": 3}.get(name, 2)


def _of_parser(parts: dict[str, dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield an earlier form of a data schema, and put what it holds to where it is now."""
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
