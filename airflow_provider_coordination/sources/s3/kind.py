"""Objects of S3, and files, as a kind of source."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from airflow_provider_coordination.sources.item_kind import ItemKind
from airflow_provider_coordination.sources.s3.objects import ListedObject
from airflow_provider_coordination.sources.source_kind import DatasetName, Settings, file_dataset

if TYPE_CHECKING:
    from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
    from airflow_provider_coordination.coordination.supplier import Supplier
    from airflow_provider_coordination.sources.connections import ConnectionResolver
    from airflow_provider_coordination.sources.s3.settings import S3Objects


def _datasets(settings: Settings) -> Iterable[DatasetName]:
    return (file_dataset(path) for path in settings["paths"])


def _left(before: Settings, now: Settings) -> Iterable[str]:
    """Return the buckets, or other filesystems, of which no path is read any more."""
    stores_before, stores = ({file_dataset(path).namespace for path in each.get("paths", ())} for each in (before, now))
    return (f"location {store!r}" for store in sorted(stores_before - stores))


def _supplier(described: S3Objects, coordinator: SourceCoordinator, connections: ConnectionResolver) -> Supplier:
    from airflow_provider_coordination.sources.s3.scan import S3Scan

    return S3Scan(described, coordinator)


KIND = ItemKind(
    "s3",
    "airflow_provider_coordination.sources.s3.reader:ObjectReader",
    _datasets,
    reads="airflow_provider_coordination.sources.s3.settings:S3Objects",
    left=_left,
    supplier=_supplier,
    claims=lambda item: ListedObject.from_item(item).name,
)
