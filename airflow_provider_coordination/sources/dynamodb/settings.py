"""The settings of DynamoDB sources, which are passed to the Spark job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.rereading import check_rereading

MAX_SEGMENTS = 1_000_000
"""The maximum number of segments of a parallel scan that DynamoDB allows."""


@dataclass(frozen=True, kw_only=True)
class DynamoDBSettings:
    """A table, read by a parallel scan.

    :param table: its name.
    :param segments: the number of segments of the scan; None lets the supplier decide by the table's size.
    :param scan: a name for this read of the table: under another name, the whole table is read again.
    :param filter_expression: read only items for which this is true; DynamoDB reads, and bills, the others too.
    :param projection_expression: read only these attributes of each item.
    :param expression_attribute_names: the names that begin with `#` in the expressions.
    :param expression_attribute_values: the values that begin with `:` in the expressions, as DynamoDB's JSON, such as
        `{":min": {"N": "10"}}`; binary values as base64.
    :param consistent_read: read consistently, at twice the price.
    :param read_units_per_second: the maximum capacity for reading the whole table, shared by the segments. None for no
        limit.
    :param interval_seconds: read each segment again this many seconds after it is delivered; None for never.
    :param count: how often it is read in total; None for no limit. Only with `interval_seconds`.
    :param aws: the endpoint and the credentials of DynamoDB.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """

    table: str
    segments: int | None = None
    scan: str = ""
    filter_expression: str | None = None
    projection_expression: str | None = None
    expression_attribute_names: dict[str, Any] = field(default_factory=dict)
    expression_attribute_values: dict[str, Any] = field(default_factory=dict)
    consistent_read: bool = False
    read_units_per_second: float | None = None
    interval_seconds: float | None = None
    count: int | None = None
    aws: AwsSettings = field(default_factory=AwsSettings)

    def __post_init__(self) -> None:
        if not self.table:
            raise _invalid("table", self.table, "must be the name of a table")
        if self.segments is not None and not 1 <= self.segments <= MAX_SEGMENTS:
            raise _invalid("segments", self.segments, f"must be from 1 to {MAX_SEGMENTS}")
        if self.read_units_per_second is not None and self.read_units_per_second <= 0:
            raise _invalid("read_units_per_second", self.read_units_per_second, "must be positive")
        for name, value in self.expression_attribute_values.items():
            if not isinstance(value, dict) or len(value) != 1:
                raise _invalid(
                    "expression_attribute_values", {name: value}, """must contain typed values such as {"N": "10"}"""
                )
        check_rereading("DynamoDB settings", self.interval_seconds, self.count)

    @property
    def reads_left(self) -> int | None:
        """How often each segment is read after the first time; None for no limit."""
        return None if self.count is None else self.count - 1


@dataclass(frozen=True, kw_only=True)
class DynamoDBExportSettings:
    """A point-in-time export of a table, as `ExportTableToPointInTime` writes it to S3 in DynamoDB's JSON.

    Give one of `export_arn`, `location` and `table_arn`.

    :param export_arn: an export that was started elsewhere.
    :param location: the folder of a finished export, which has `manifest-summary.json`: an `s3://` URI, or a path that
        every worker can read.
    :param table_arn: the table that the supplier exports; it needs point-in-time recovery.
    :param bucket: the bucket of the started export.
    :param prefix: the prefix of its objects' keys.
    :param bucket_owner: the account of the bucket, if it is another account.
    :param kms_key_id: the key that encrypts its objects; None for S3's own key.
    :param export: a name for the started export: another name starts another export.
    :param files_per_partition: the maximum number of files of one partition.
    :param aws: the endpoint and the credentials of DynamoDB.
    :param s3: the settings for S3.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """

    export_arn: str | None = None
    location: str | None = None
    table_arn: str | None = None
    bucket: str | None = None
    prefix: str | None = None
    bucket_owner: str | None = None
    kms_key_id: str | None = None
    export: str = ""
    files_per_partition: int = 8
    aws: AwsSettings = field(default_factory=AwsSettings)
    s3: AwsSettings = field(default_factory=AwsSettings)

    def __post_init__(self) -> None:
        names = [name for name in ("export_arn", "location", "table_arn") if getattr(self, name)]
        if len(names) != 1:
            raise ConfigurationError(
                "DynamoDB export settings: give one of 'export_arn', 'location' and 'table_arn'; got "
                f"{' and '.join(map(repr, names)) or 'none'}"
            )
        for name in ("export_arn", "table_arn"):
            value = getattr(self, name)
            if value and not value.startswith("arn:"):
                raise _invalid_export(
                    name, value, "must be an ARN, such as arn:aws:dynamodb:eu-west-1:123456789012:table/orders"
                )
        if self.table_arn and not self.bucket:
            raise _invalid_export("bucket", self.bucket, "must be given together with 'table_arn'")
        if self.files_per_partition < 1:
            raise _invalid_export("files_per_partition", self.files_per_partition, "must be at least 1")


def _invalid(name: str, value: object, remedy: str) -> ConfigurationError:
    return ConfigurationError(f"DynamoDB settings: field {name!r} {remedy}; got {value!r}")


def _invalid_export(name: str, value: object, remedy: str) -> ConfigurationError:
    return ConfigurationError(f"DynamoDB export settings: field {name!r} {remedy}; got {value!r}")
