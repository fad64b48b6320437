"""Exports of DynamoDB tables to S3 as a kind of source, and what a DAG or a spec says of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.field_hints import Limits
from airflow_provider_coordination.settings import CONNECTED, text_value
from airflow_provider_coordination.sources.connections import ConnectionResolver
from airflow_provider_coordination.sources.dynamodb.kind import table_dataset
from airflow_provider_coordination.sources.item_kind import ItemKind, changed_values
from airflow_provider_coordination.sources.questions import aws_question, place_question
from airflow_provider_coordination.sources.reads import AwsReads
from airflow_provider_coordination.sources.source_kind import DatasetName, Settings, file_dataset

if TYPE_CHECKING:
    pass


@dataclass
class DynamoDBExport(AwsReads):
    """A point-in-time export of a DynamoDB table, for the `reads` of operators.

    `ExportTableToPointInTime` writes it to S3, in DynamoDB's JSON. Give one of `location`, `export_arn` and
    `table_arn`. There are no partitions while an export is in progress: run the supplier again later.

    :param location: the folder of a finished export that holds `manifest-summary.json`, such as
        `s3://bucket/prefix/AWSDynamoDB/<export id>`, or a path that every worker reaches. (templated)
    :param export_arn: the ARN of an export that was started elsewhere. (templated)
    :param table_arn: the ARN of the table that the supplier exports; it needs point-in-time recovery. (templated)
    :param bucket: the bucket of an export that the supplier starts; required with `table_arn`. (templated)
    :param prefix: the prefix of the keys of its objects. (templated)
    :param bucket_owner: the account that owns the bucket, if it is another account. (templated)
    :param kms_key_id: the key that encrypts its objects; the S3 managed key by default. (templated)
    :param export: a name for the export that the supplier starts. Another name, such as `"{{ ds }}"`, starts another
        export. (templated)
    :param files_per_partition: the maximum number of files in a partition. (templated)
    :param aws_conn_id: the AWS connection, for DynamoDB and S3; None for the AWS default credential chain. (templated)
    :param source: the source's name if the operator sets none; by default `dynamodb-export-` and the table, or the
        export's id. (templated)
    """

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
    files_per_partition: Annotated[int, Limits(minimum=1)] = 8
    s3: AwsSettings = field(default_factory=AwsSettings, repr=False, metadata=CONNECTED)

    @property
    @override
    def own_name(self) -> str:
        name = text_value(self.table_arn) or text_value(self.location) or text_value(self.export_arn) or ""
        return f"dynamodb-export-{name.rstrip('/').rpartition('/')[2]}"

    @property
    @override
    def reads_from(self) -> Mapping[str, Any]:
        # The table: another export of it holds the same data at a later time.
        return {"table_arn": table} if (table := text_value(self.table_arn)) else {}

    @override
    def set_connections(self, connections: ConnectionResolver) -> None:
        self.aws = connections.aws(self.aws_conn_id, self.region_name, "dynamodb")
        self.s3 = connections.aws(self.aws_conn_id, self.region_name, "s3")

    @override
    def check_together(self) -> None:
        names = [name for name in ("export_arn", "location", "table_arn") if getattr(self, name)]
        if len(names) != 1:
            raise ConfigurationError(
                "DynamoDBExport: give one of 'export_arn', 'location' and 'table_arn'; got "
                f"{' and '.join(map(repr, names)) or 'none'}"
            )
        for name in ("export_arn", "table_arn"):
            value = getattr(self, name)
            if value and not value.startswith("arn:"):
                raise self.invalid(name, "must be an ARN, such as arn:aws:dynamodb:eu-west-1:123456789012:table/orders")
        if self.table_arn and not self.bucket:
            raise self.invalid("bucket", "must be given together with 'table_arn'")


TABLE_ARN = re.compile(r"arn:[\w-]+:dynamodb:(?P<region>[\w-]*):\d*:table/(?P<table>[^/]+)")


def _datasets(settings: Settings) -> Iterable[DatasetName]:
    if location := settings.get("location"):
        yield file_dataset(location)
    elif found := TABLE_ARN.match(settings.get("table_arn") or settings.get("export_arn") or ""):
        yield table_dataset(found["table"], {**settings["aws"], "region": found["region"]})


def _left(before: Settings, now: Settings) -> Iterable[str]:
    """Return the table if both exports name one, and they differ."""
    return changed_values(before, now, ("table_arn",) if now.get("table_arn") is not None else ())


READER = "airflow_provider_coordination.sources.dynamodb_export.files:ExportReader"

KIND = ItemKind(
    "dynamodb_export",
    READER,
    _datasets,
    reads="airflow_provider_coordination.sources.dynamodb_export.kind:DynamoDBExport",
    left=_left,
    supplier="airflow_provider_coordination.sources.dynamodb_export.files:ExportSupplier",
    questions=(
        place_question("export", "Folder of the export, which holds manifest-summary.json", "location"),
        aws_question(only_on_s3="export"),
    ),
)
