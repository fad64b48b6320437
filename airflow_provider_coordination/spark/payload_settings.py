"""The payload of records as a DAG or a spec describes it, and as jobs read it; it needs neither Airflow nor Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.field_hints import Limits, Texts
from airflow_provider_coordination.settings import CONNECTED, Described, FieldError
from airflow_provider_coordination.sources.connections import ConnectionResolver
from airflow_provider_coordination.spark.payload_schema import columns_of

AUTO, GZIP, ZSTD = "auto", "gzip", "zstd"
MAX_RECORD_BYTES = 64 * 2**20
NOT_FLAT = frozenset({"ARRAY", "BINARY", "INTERVAL", "MAP", "STRUCT", "VARIANT"})
"""The types that a value of CSV cannot have."""
FORMATS = ("json", "csv", "avro", "protobuf")
"""The fields of `Payload` that are formats."""


@dataclass(kw_only=True)
class Json(Described):
    """Payloads of JSON.

    :param many: whether a payload may be several objects: one after another, on one or several lines, or in an array.
        By default it is one object. (templated)
    """

    many: bool = False


@dataclass(kw_only=True)
class Csv(Described):
    """Payloads of values between delimiters, one or several rows in each. With the delimiter `"\\t"` they are TSV.

    :param columns: the names of the values, in the order of the payload; by default those of `schema`. (templated)
    :param header: whether the first row of each payload names the values. (templated)
    :param skip_rows: how many rows to leave out at the start of each payload, before a header. (templated)
    :param delimiter: between values; one character. (templated)
    :param quote: around a value that has delimiters, ends of lines, or itself twice; None for none. (templated)
    :param null_values: the texts that mean null, unless they are quoted. (templated)
    """

    columns: Annotated[Texts, Limits(is_unique=True)] = ()
    header: bool = False
    skip_rows: Annotated[int, Limits(minimum=0)] = 0
    delimiter: str = ","
    quote: str | None = '"'
    null_values: Texts = ("",)

    @override
    def check_together(self) -> None:
        for name in ("delimiter", "quote"):
            value = getattr(self, name)
            if value is not None and (len(value) != 1 or not value.isascii() or value in "\r\n\0"):
                raise self.invalid(name, "must be one ASCII character, and not a line break")
        if self.delimiter == self.quote:
            raise self.invalid("delimiter", "must differ from 'quote'")
        if self.header and self.columns:
            raise self.invalid("columns", "must be left out if the first row names the values")


@dataclass(kw_only=True)
class ConfluentRegistry(Described):
    """A schema registry with Confluent's HTTP API. Payloads begin with a zero byte and the id of their schema.

    :param url: its URL, such as `https://registry:8081`, or the URLs of several hosts. (templated)
    :param registry_conn_id: the Airflow connection with its login and password; None for none. (templated)
    """

    url: Annotated[Texts, Limits(min_items=1)]
    registry_conn_id: str | None = None
    login: str | None = field(default=None, metadata=CONNECTED)
    password: str | None = field(default=None, repr=False, metadata=CONNECTED)

    @override
    def check_together(self) -> None:
        for each in self.url:
            if not each.startswith(("http://", "https://")):
                raise self.invalid("url", "must begin with http:// or https://")

    def connected(self, connections: ConnectionResolver) -> ConfluentRegistry:
        """Return it with its connection resolved; see `Payload.connected`."""
        if self.registry_conn_id is None:
            return self
        found = connections.values(self.registry_conn_id, f"connection {self.registry_conn_id!r}")
        return replace(self, login=found.login, password=found.password)


@dataclass(kw_only=True)
class GlueRegistry(Described):
    """The AWS Glue Schema Registry. Payloads begin with its header, which names the version of their schema.

    :param aws_conn_id: the AWS connection; None for the AWS default credential chain. (templated)
    :param region_name: the AWS region; overrides the region of the connection. (templated)
    """

    aws_conn_id: str | None = "aws_default"
    region_name: str | None = None
    aws: AwsSettings = field(default_factory=AwsSettings, repr=False, metadata=CONNECTED)

    def connected(self, connections: ConnectionResolver) -> GlueRegistry:
        """Return it with its connection resolved; see `Payload.connected`."""
        return replace(self, aws=connections.aws(self.aws_conn_id, self.region_name, "glue"))


@dataclass(kw_only=True)
class Avro(Described):
    """Payloads of Avro: one datum each, or a whole Avro file, which has its own schema.

    :param schema: the Avro schema of readers as JSON text. Without it, each payload is read by the schema of its
        writer, which a registry has. (templated)
    :param confluent: the registry of payloads that have Confluent's framing. (templated)
    :param glue: the registry of payloads that have the framing of AWS Glue. (templated)
    """

    schema: str | None = None
    confluent: ConfluentRegistry | None = None
    glue: GlueRegistry | None = None

    @override
    def check_together(self) -> None:
        if self.confluent is not None and self.glue is not None:
            raise FieldError(self.title, "glue", "is given together with 'confluent': give one registry")
        if self.schema is None and self.registry is None:
            raise FieldError(self.title, "schema", "is missing: give it as JSON text, or give a registry")
        if self.schema is not None:
            try:
                parsed = json.loads(self.schema)
            except ValueError:
                raise self.invalid(
                    "schema", 'must be an Avro schema as JSON text, such as {"type": "record", …}'
                ) from None
            if not isinstance(parsed, dict) or parsed.get("type") != "record":
                raise self.invalid("schema", "must be the schema of a record, whose fields are the columns")

    @property
    def registry(self) -> ConfluentRegistry | GlueRegistry | None:
        """The registry that the payloads name their schema in; None if they name none."""
        return self.confluent or self.glue


@dataclass(kw_only=True)
class Protobuf(Described):
    """Payloads of one Protobuf message each.

    :param descriptor_set: the location of a `FileDescriptorSet`, as `protoc --include_imports --descriptor_set_out`
        writes it: a path or URI that the driver reaches, or the file itself as `data:;base64,…`. (templated)
    :param message: the full name of the message, such as `shop.Order`. (templated)
    """

    descriptor_set: str
    message: str


@dataclass(kw_only=True)
class Payload(Described):
    """What the payload of a record is. By default it is one JSON object, which `schema` parses.

    :param compression: how payloads are compressed: `"gzip"`, `"zstd"`, or `"auto"`, which distinguishes both and
        uncompressed ones by their first bytes; None for not at all. (templated)
    :param max_record_bytes: the maximum size of a record once it is decompressed; a larger one is bad. (templated)
    :param cloudwatch_logs: whether payloads are envelopes of CloudWatch Logs, compressed or not. Each log event becomes
        a row, and its message is the payload of the format. (templated)
    :param json: options of JSON. (templated)
    :param csv: that the format is CSV or TSV. (templated)
    :param avro: that the format is Avro. (templated)
    :param protobuf: that the format is Protobuf. (templated)
    """

    compression: Annotated[str | None, Limits(one_of=(AUTO, GZIP, ZSTD))] = None
    max_record_bytes: Annotated[int, Limits(minimum=1, maximum=2**31 - 1)] = MAX_RECORD_BYTES
    cloudwatch_logs: bool = False
    json: Json | None = None
    csv: Csv | None = None
    avro: Avro | None = None
    protobuf: Protobuf | None = None

    @property
    def format(self) -> str:
        """The format: one of `FORMATS`."""
        return next((name for name in FORMATS if getattr(self, name) is not None), "json")

    @property
    def is_decoded(self) -> bool:
        """Whether payloads are decoded before Spark parses them; a payload of one JSON object is not."""
        has_many = self.json is not None and self.json.many
        return self.compression is not None or self.cloudwatch_logs or self.format != "json" or has_many

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules that the executors need for it."""
        if self.format == "avro":
            return ("fastavro", "boto3") if self.avro is not None and self.avro.glue is not None else ("fastavro",)
        return ("google.protobuf",) if self.format == "protobuf" else ()

    @override
    def check(self, is_known: Callable[[Any], bool] = lambda value: True) -> None:
        super().check(partial(_is_known, is_known))

    def is_known(self, is_known: Callable[[Any], bool]) -> bool:
        """Return whether every value is known; see `Described.check`."""
        return _is_known(is_known, self)

    @override
    def check_together(self) -> None:
        given = [name for name in FORMATS if getattr(self, name) is not None]
        if len(given) > 1:
            raise FieldError(self.title, given[1], f"is given together with {given[0]!r}: give one format")

    def check_schema(self, schema: str | None) -> None:
        """Check that the format can have the columns of a job.

        :param schema: the job's schema; None if it has none.
        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        if schema is None:
            if self.format in ("csv", "protobuf"):
                raise ConfigurationError(
                    f"field 'schema' is missing, but 'payload.{self.format}' is given: give the columns, such as "
                    "'id STRING NOT NULL, amount DOUBLE'"
                )
            if self.avro is not None and self.avro.schema is None:
                raise ConfigurationError(
                    "field 'schema' is missing, but 'payload.avro' has a registry: schemas in a registry change, so "
                    "give the columns, or the Avro schema of readers in 'payload.avro.schema'"
                )
            return
        columns = columns_of(schema)
        for name, kind in columns.items() if self.csv is not None else ():
            if kind in NOT_FLAT:
                raise ConfigurationError(
                    f"field 'schema': column {name!r} is of type {kind}, which a value of CSV cannot be; declare it "
                    "as STRING, and parse it in the transform"
                )
            if self.csv is not None and self.csv.columns and name not in self.csv.columns:
                raise ConfigurationError(
                    f"field 'schema': column {name!r} is not in 'payload.csv.columns', which names the values; they "
                    f"are {', '.join(map(repr, self.csv.columns))}"
                )

    def connected(self, connections: ConnectionResolver) -> Payload:
        """Return it with its connections resolved, in a task.

        :param connections: resolves what it names.
        :raises ConfigurationError: naming the connection or the field, and the remedy.
        """
        if self.avro is None or self.avro.registry is None:
            return self
        name = "glue" if self.avro.glue is not None else "confluent"
        change: Mapping[str, Any] = {name: self.avro.registry.connected(connections)}
        return replace(self, avro=replace(self.avro, **change))


def _is_known(is_known: Callable[[Any], bool], value: Any) -> bool:
    """Return whether a value, and what is within it, is the same once templates are rendered."""
    if isinstance(value, Described):
        return all(_is_known(is_known, getattr(value, name)) for name in value.template_fields)
    return is_known(value)
