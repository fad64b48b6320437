"""DynamoDB as a source, as a DAG describes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.supplier import Supplier
from airflow_provider_coordination.operators.template_values import (
    bool_value,
    int_value,
    number_value,
    seconds_value,
    text_value,
)
from airflow_provider_coordination.settings import write_settings
from airflow_provider_coordination.sources.dynamodb.settings import DynamoDBExportSettings, DynamoDBSettings
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.sources.reads import Connected, Connections


@dataclass
class DynamoDBTable:
    """A DynamoDB table, read by a parallel scan, for the `reads` of operators.

    :param table: the name of the table. (templated)
    :param segments: the number of segments of the scan; by default one for each 256 MB of the table. (templated)
    :param scan: a name for this scan of the table. Another name, such as `"{{ ds }}"`, reads the whole table again.
        (templated)
    :param filter_expression: read only items that match; DynamoDB reads, and bills, the others too. (templated)
    :param projection_expression: read only these attributes of each item. (templated)
    :param expression_attribute_names: the values of the names in the expressions that begin with `#`. (templated)
    :param expression_attribute_values: the values of the names that begin with `:`, as DynamoDB JSON, such as
        `{":min": {"N": "10"}}`. (templated)
    :param consistent_read: use consistent reads, which cost twice the capacity. (templated)
    :param read_units_per_second: the maximum read capacity for the whole table; the segments share it. (templated)
    :param interval: read each segment again this long after its delivery; timedelta or seconds. (templated)
    :param count: how many times the table is read in total; no limit by default. Only with `interval`. (templated)
    :param aws_conn_id: the AWS connection; None for the AWS default credential chain. (templated)
    :param region_name: the AWS region; overrides the region of the connection. (templated)
    :param source: the source's name if the operator sets none; `dynamodb-<table>` by default. (templated)
    """

    template_fields: ClassVar[Sequence[str]] = (
        "table",
        "segments",
        "scan",
        "filter_expression",
        "projection_expression",
        "expression_attribute_names",
        "expression_attribute_values",
        "consistent_read",
        "read_units_per_second",
        "interval",
        "count",
        "aws_conn_id",
        "region_name",
        "source",
    )
    is_endless: ClassVar[bool] = False
    kind: ClassVar[str] = "dynamodb"

    table: str
    _: KW_ONLY
    segments: int | str | None = None
    scan: str | None = None
    filter_expression: str | None = None
    projection_expression: str | None = None
    expression_attribute_names: Mapping[str, str] | None = None
    expression_attribute_values: Mapping[str, Mapping[str, Any]] | None = None
    consistent_read: bool | str = False
    read_units_per_second: float | str | None = None
    interval: timedelta | float | str | None = None
    count: int | str | None = None
    aws_conn_id: str | None = "aws_default"
    region_name: str | None = None
    source: str | None = None

    @property
    def default_source(self) -> str:
        """See `Reads.default_source`."""
        return text_value(self.source) or f"dynamodb-{self.table}"

    @property
    def reads_from(self) -> Mapping[str, Any]:
        """See `Located.reads_from`."""
        return {"table": self.table, "region_name": text_value(self.region_name)}

    def check(self) -> None:
        """Check every value that can be checked without a connection.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        self._settings(AwsSettings())

    def connect(self, connections: Connections) -> Connected:
        """See `Reads.connect`."""
        settings = self._settings(connections.aws(self.aws_conn_id, text_value(self.region_name), "dynamodb"))
        reads = ReadsSettings(kind=self.kind, settings=write_settings(settings))
        return Connected(reads=reads, supplier=partial(_segments, settings))

    def _settings(self, aws: AwsSettings) -> DynamoDBSettings:
        """Return the checked settings.

        :param aws: the settings of the DynamoDB client.
        """
        return DynamoDBSettings(
            table=text_value(self.table) or "",
            segments=int_value("segments", self.segments),
            scan=text_value(self.scan) or "",
            filter_expression=text_value(self.filter_expression),
            projection_expression=text_value(self.projection_expression),
            expression_attribute_names=_mapping("expression_attribute_names", self.expression_attribute_names),
            expression_attribute_values=_mapping("expression_attribute_values", self.expression_attribute_values),
            consistent_read=bool_value("consistent_read", self.consistent_read),
            read_units_per_second=number_value("read_units_per_second", self.read_units_per_second),
            interval_seconds=seconds_value("interval", self.interval),
            count=int_value("count", self.count),
            aws=aws,
        )


@dataclass
class DynamoDBExport:
    """A point-in-time export of a DynamoDB table, for the `reads` of operators.

    Give one of `location`, `export_arn` and `table_arn`. There are no partitions while an export is in progress: run
    the supplier again later.

    :param location: the folder of a finished export that holds `manifest-summary.json`: an `s3://` URI, or a path that
        every worker can read. (templated)
    :param export_arn: the ARN of an export that was started elsewhere. (templated)
    :param table_arn: the ARN of the table that the supplier exports; it needs point-in-time recovery. (templated)
    :param bucket: the bucket of an export that the supplier starts. (templated)
    :param prefix: the prefix of the keys of its objects. (templated)
    :param bucket_owner: the account that owns the bucket, if it is another account. (templated)
    :param kms_key_id: the key that encrypts its objects; the S3 managed key by default. (templated)
    :param export: a name for the export that the supplier starts. Another name, such as `"{{ ds }}"`, starts another
        export. (templated)
    :param files_per_partition: the maximum number of files in a partition. (templated)
    :param aws_conn_id: the AWS connection; None for the AWS default credential chain. (templated)
    :param region_name: the AWS region; overrides the region of the connection. (templated)
    :param source: the source's name if the operator sets none; by default `dynamodb-export-` and the table, or the
        export's id. (templated)
    """

    template_fields: ClassVar[Sequence[str]] = (
        "export_arn",
        "location",
        "table_arn",
        "bucket",
        "prefix",
        "bucket_owner",
        "kms_key_id",
        "export",
        "files_per_partition",
        "aws_conn_id",
        "region_name",
        "source",
    )
    is_endless: ClassVar[bool] = False
    kind: ClassVar[str] = "dynamodb_export"

    location: str | None = None
    _: KW_ONLY
    export_arn: str | None = None
    table_arn: str | None = None
    bucket: str | None = None
    prefix: str | None = None
    bucket_owner: str | None = None
    kms_key_id: str | None = None
    export: str | None = None
    files_per_partition: int | str = 8
    aws_conn_id: str | None = "aws_default"
    region_name: str | None = None
    source: str | None = None

    @property
    def default_source(self) -> str:
        """See `Reads.default_source`."""
        if source := text_value(self.source):
            return source
        name = text_value(self.table_arn) or text_value(self.location) or text_value(self.export_arn) or ""
        return f"dynamodb-export-{name.rstrip('/').rpartition('/')[2]}"

    @property
    def reads_from(self) -> Mapping[str, Any]:
        """See `Located.reads_from`: the table; another export of it holds the same data at a later time."""
        return {"table_arn": table} if (table := text_value(self.table_arn)) else {}

    def check(self) -> None:
        """Check every value that can be checked without a connection.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        self._settings(AwsSettings(), AwsSettings())

    def connect(self, connections: Connections) -> Connected:
        """See `Reads.connect`."""
        region = text_value(self.region_name)
        settings = self._settings(
            dynamodb=connections.aws(self.aws_conn_id, region, "dynamodb"),
            s3=connections.aws(self.aws_conn_id, region, "s3"),
        )
        reads = ReadsSettings(kind=self.kind, settings=write_settings(settings))
        return Connected(reads=reads, supplier=partial(_files, settings))

    def _settings(self, dynamodb: AwsSettings, s3: AwsSettings) -> DynamoDBExportSettings:
        """Return the checked settings.

        :param dynamodb: the settings of the DynamoDB client.
        :param s3: the settings of the S3 client.
        """
        return DynamoDBExportSettings(
            export_arn=text_value(self.export_arn),
            location=text_value(self.location),
            table_arn=text_value(self.table_arn),
            bucket=text_value(self.bucket),
            prefix=text_value(self.prefix),
            bucket_owner=text_value(self.bucket_owner),
            kms_key_id=text_value(self.kms_key_id),
            export=text_value(self.export) or "",
            files_per_partition=int_value("files_per_partition", self.files_per_partition) or 0,
            aws=dynamodb,
            s3=s3,
        )


def _segments(settings: DynamoDBSettings, coordinator: SourceCoordinator) -> Supplier:
    from airflow_provider_coordination.sources.dynamodb.supplier import SegmentSupplier

    return SegmentSupplier(settings, coordinator.view)


def _files(settings: DynamoDBExportSettings, coordinator: SourceCoordinator) -> Supplier:
    from airflow_provider_coordination.sources.dynamodb_export.supplier import ExportSupplier

    return ExportSupplier(settings, coordinator.view)


def _mapping(field: str, value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"field {field!r} must be a mapping; got {value!r}")
    return {name: dict(held) if isinstance(held, Mapping) else held for name, held in value.items()}
