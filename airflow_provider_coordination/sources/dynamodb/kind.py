"""Tables of DynamoDB as a kind of source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_coordination.sources.item_kind import ItemKind, changed_values
from airflow_provider_coordination.sources.source_kind import DatasetName, Settings, aws_host

if TYPE_CHECKING:
    from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
    from airflow_provider_coordination.coordination.supplier import Supplier
    from airflow_provider_coordination.sources.connections import ConnectionResolver
    from airflow_provider_coordination.sources.dynamodb.settings import DynamoDBTable


def _datasets(settings: Settings) -> Iterable[DatasetName]:
    yield table_dataset(settings["table"], settings["aws"])


def table_dataset(table: str, aws: Mapping[str, Any]) -> DatasetName:
    """Return the dataset of a table.

    :param aws: the AWS settings, as a JSON object.
    """
    return DatasetName(f"dynamodb://{aws_host('dynamodb', aws)}", table)


def _left(before: Settings, now: Settings) -> Iterable[str]:
    """Return the table if it differs, or its region; without `region_name` the connection gives the region."""
    regions = ("region_name",) if now.get("region_name") is not None else ()
    return changed_values(before, now, ("table", *regions))


def _supplier(described: DynamoDBTable, coordinator: SourceCoordinator, connections: ConnectionResolver) -> Supplier:
    from airflow_provider_coordination.sources.dynamodb.supplier import SegmentSupplier

    return SegmentSupplier(described, coordinator.view)


KIND = ItemKind(
    "dynamodb",
    "airflow_provider_coordination.sources.dynamodb.reader:SegmentReader",
    _datasets,
    reads="airflow_provider_coordination.sources.dynamodb.settings:DynamoDBTable",
    left=_left,
    supplier=_supplier,
)
