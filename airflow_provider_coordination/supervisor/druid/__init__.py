"""Translation of specs of Druid's Kinesis supervisor into specs of this package.

Each field is copied, translated, left for the user to configure manually, or not applicable. A field that this package
does not support or does not know is an error. No field is ignored silently.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.kinesis.positions import LATEST
from airflow_provider_coordination.sources.kinesis.progress import READ_ON, SKIP_TO_LATEST
from airflow_provider_coordination.supervisor.druid import fields
from airflow_provider_coordination.supervisor.druid.columns import (
    DruidColumns,
    add_computed,
    add_dimensions,
    add_metrics,
    add_time,
    computed_columns,
)
from airflow_provider_coordination.supervisor.druid.filters import FUNCTION, TIME, Filters, columns_in
from airflow_provider_coordination.supervisor.druid.formats import PARTS, flattened, read_format
from airflow_provider_coordination.supervisor.druid.rows import (
    DruidField,
    FieldOutcome,
    Row,
    UnsupportedFieldError,
    whole_number,
    yes_or_no,
)
from airflow_provider_coordination.supervisor.spec import VERSION, IngestionSpec
from airflow_provider_coordination.supervisor.spec_keys import TOP_LEVEL_KEYS

TYPES = ("type", "ioConfig.type")
KNOWN = {field.name: field for field in fields.FIELDS}
SIMILAR = 0.9
"""How similar a name is to the known one for which it is taken, 0 to 1."""


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


def from_druid(spec: Mapping[str, Any], *, lake: str, transform: str | None = None) -> DruidTranslation:
    """Translate a spec of Druid's Kinesis supervisor.

    :param spec: the spec in Druid's format.
    :param lake: the folder, a path or URI, in which the dataset gets a folder of its name; bad records go to
        `_bad/<name>` in it.
    :param transform: `module:function` of a transform that does what a schema and a predicate cannot.
    :raises ConfigurationError: naming every field that this package does not support or know, with the remedy.
    """
    if not isinstance(spec, Mapping):
        raise ConfigurationError(f"spec of Druid: expected an object; got {type(spec).__name__}")
    translation = _Translation(lake.rstrip("/"), transform)
    translation.translate(spec)
    return translation.result()


class _Translation:
    """A translation in progress; see `from_druid`."""

    def __init__(self, lake: str, transform: str | None) -> None:
        self._lake = lake
        self._transform = transform
        self._columns = DruidColumns(has_transform=transform is not None)
        self._is_parsed = True
        self._time = ""
        self._given: dict[str, Any] = {}
        self._rows: list[Row] = []
        self.spec: dict[str, Any] = {}

    def translate(self, spec: Mapping[str, Any]) -> None:
        """Translate every field."""
        self._given = dict(flattened(spec))
        self._columns.computed.update(computed_columns(self._given.get("dataSchema.transformSpec")))
        self._put("version", VERSION)
        self._put("reads.kinesis.streams", None)
        for name, value in self._given.items():
            self._field(name, value)
        self._put_defaults()

    def result(self) -> DruidTranslation:
        """Return the translation.

        :raises ConfigurationError: if a field is rejected, or the result is not a valid spec.
        """
        rejected = [row for row in self._rows if row.outcome is FieldOutcome.REJECTED]
        rejected = [row for row in rejected if row.field in TYPES] or rejected  # the fields depend on the type
        if rejected:
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
        if value is None:
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
            near = difflib.get_close_matches(name, KNOWN, n=1, cutoff=SIMILAR)
            remedy = (
                f"write {near[0]!r}, or remove it" if near else "remove it, or see docs/druid.md for the known fields"
            )
            self._reject(name, f"it is unknown; {remedy}")
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
            "ioConfig.region": self._region,
            "ioConfig.taskCount": self._task_count,
            "ioConfig.boundedStreamConfig": self._bounds,
            "tuningConfig.maxParseExceptions": self._max_parse_exceptions,
            "tuningConfig.resetOffsetAutomatically": self._on_data_loss,
        }

    def _data_source(self, field: DruidField, value: Any) -> Row:
        if not isinstance(value, str) or not value:
            raise UnsupportedFieldError(f"it must be the name of a data source; got {value!r}")
        self._put("source", value)
        return field.row

    def _timestamp(self, field: DruidField, value: Any) -> Row:
        self._time = add_time(self._columns, value)
        return field.row

    def _dimensions(self, field: DruidField, value: Any) -> Row:
        if notes := add_dimensions(self._columns, value):
            return Row(field=field.name, outcome=FieldOutcome.MANUAL, target="schema", note=" ".join(notes))
        return field.row

    def _metrics(self, field: DruidField, value: Any) -> Row:
        add_metrics(self._columns, value)
        return field.row

    def _input_format(self, field: DruidField, value: Any) -> Row:
        payload = read_format(self._columns, value)
        if payload is not None:
            for name, options in payload.items():
                self._put(f"payload.{name}", options)
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
        if self._transform is None:
            for each in transforms or ():
                add_computed(self._columns, each, self._time)
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
            self._put(field.target, found["region"])
            return field.row
        note = f"`endpoint_url`: {value}."
        return Row(field=field.name, outcome=FieldOutcome.MANUAL, target=fields.AWS_CONNECTION, note=note)

    def _region(self, field: DruidField, value: Any) -> Row:
        endpoint = fields.AWS_ENDPOINT.fullmatch(str(self._given.get("ioConfig.endpoint")))
        if endpoint is None or endpoint["region"] == value:
            return self._plain(field, value)
        note = f"Druid ignores it with `endpoint`, whose region is {endpoint['region']}."
        return Row(field=field.name, outcome=FieldOutcome.NOT_APPLICABLE, note=note)

    def _task_count(self, field: DruidField, value: Any) -> Row:
        if f"{fields.AUTO_SCALE}.enableTaskAutoScaler" not in self._given:
            return self._plain(field, value)
        note = "Druid ignores it if scaling is enabled. The first number of jobs is `taskCountStart` or `taskCountMin`."
        return Row(field=field.name, outcome=FieldOutcome.NOT_APPLICABLE, note=note)

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

    def _on_data_loss(self, field: DruidField, value: Any) -> Row:
        """Druid resets to the position at which it would start a new stream."""
        earliest = self._given.get("ioConfig.useEarliestSequenceNumber")
        is_bounded = self._given.get("ioConfig.boundedStreamConfig") is not None
        reads_on = READ_ON if is_bounded or (earliest is not None and yes_or_no(earliest)) else SKIP_TO_LATEST
        self._put(field.target, reads_on if yes_or_no(value) else "fail")
        return field.row

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
            time = self._columns.event_time
            if time in self._columns.expressions:
                self._reject(
                    rejecting[0],
                    "records are rejected before 'missingValue' gives them a time; remove one of them, or leave such "
                    "records out in a transform",
                )
            elif self._is_parsed and time:
                supervise["event_time"] = time
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
        self._put("bad_records.dead_letter_path", f"{self._lake}/_bad/{source}")
        schema = self._columns.ddl if self._is_parsed else None
        formats = self._columns.time_formats or None
        for name, value in (
            ("schema", schema),
            ("time_formats", formats if schema else None),
            ("computed", self._columns.expressions or None),
            ("transform", self._transform),
        ):
            if value is not None:
                self.spec[name] = value
        if self._given.get("ioConfig.inputFormat") is None:
            self._reject("ioConfig.inputFormat", 'it is missing; give the format of the payloads: {"type": "json"}')
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
