"""Exports of DynamoDB tables to S3 as a kind of source."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from airflow_provider_coordination.sources.dynamodb.kind import table_dataset
from airflow_provider_coordination.sources.item_kind import ItemKind, changed_values
from airflow_provider_coordination.sources.source_kind import DatasetName, Settings, file_dataset

if TYPE_CHECKING:
    from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
    from airflow_provider_coordination.coordination.supplier import Supplier
    from airflow_provider_coordination.sources.connections import ConnectionResolver
    from airflow_provider_coordination.sources.dynamodb_export.settings import DynamoDBExport

TABLE_ARN = re.compile(r"arn:[\w-]+:dynamodb:(?P<region>[\w-]*):\d*:table/(?P<table>[^/]+)")


def _datasets(settings: Settings) -> Iterable[DatasetName]:
    if location := settings.get("location"):
        yield file_dataset(location)
    elif found := TABLE_ARN.match(settings.get("table_arn") or settings.get("export_arn") or ""):
        yield table_dataset(found["table"], {**settings["aws"], "region": found["region"]})


def _left(before: Settings, now: Settings) -> Iterable[str]:
    """Return the table if both exports name one, and they differ."""
    return changed_values(before, now, ("table_arn",) if now.get("table_arn") is not None else ())


def _supplier(described: DynamoDBExport, coordinator: SourceCoordinator, connections: ConnectionResolver) -> Supplier:
    from airflow_provider_coordination.sources.dynamodb_export.supplier import ExportSupplier

    return ExportSupplier(described, coordinator.view)


READER = "airflow_provider_coordination.sources.dynamodb_export.reader:ExportReader"

KIND = ItemKind(
    "dynamodb_export",
    READER,
    _datasets,
    reads="airflow_provider_coordination.sources.dynamodb_export.settings:DynamoDBExport",
    left=_left,
    supplier=_supplier,
)
