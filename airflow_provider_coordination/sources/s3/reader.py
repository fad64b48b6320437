"""Reading objects, on the executors of a Spark job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import pyarrow as pa

from airflow_provider_coordination.sources.items import Item, ItemReader, ReadPage, Wait
from airflow_provider_coordination.sources.s3.conditions import Conditions
from airflow_provider_coordination.sources.s3.deletion import Deletion
from airflow_provider_coordination.sources.s3.formats import Format, columns_before_reading, format_of
from airflow_provider_coordination.sources.s3.locations import is_s3, open_filesystem, s3_client
from airflow_provider_coordination.sources.s3.object_streams import FetchedObject, FileObject, ReadableObject, S3Object
from airflow_provider_coordination.sources.s3.read_ahead import ReadAhead
from airflow_provider_coordination.sources.s3.settings import S3Objects


class ObjectReader:
    """Reads objects of S3, and files of the filesystems that pyarrow supports.

    :param settings: of the source.
    """

    reads_at_once: int | None = None

    def __init__(self, settings: S3Objects) -> None:
        self._settings = settings
        self._format_settings = settings.format_settings  # read here: executors have no msgspec

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any]) -> ObjectReader:
        """Return the reader of a source with these settings, as `S3Objects.to_mapping` wrote them.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        return cls(S3Objects.from_mapping(settings))

    def read(self, item: Item, position: str) -> Iterator[ReadPage]:
        """See `ItemReader.read`."""
        return self._format.pages(self._opened(item), position)

    def columns(self, spark: object) -> pa.Schema | None:
        """See `KnowsColumns.columns`."""
        return columns_before_reading(self._format_settings)

    def origin(self, item: Item) -> str:
        """See `ItemReader.origin`: the object's URI."""
        return str(item["uri"])

    @contextmanager
    def reading(self, items: Sequence[Item]) -> Iterator[ItemReader]:
        """See `ReadsAhead.reading`: small objects are fetched while those before them are parsed."""
        if not any(is_s3(item["uri"]) for item in items):
            yield self  # a thread costs more than opening a file
            return
        with ReadAhead(self, items, self._fetched, self._parsed) as ahead:
            yield ahead

    def waits_for(self, items: Sequence[Item]) -> Wait | None:
        """See `Conditional.waits_for`."""
        return Conditions(self._settings, lambda: self._client).waits_for(items)

    def delivered(self, items: Sequence[Item]) -> None:
        """See `Finishing.delivered`."""
        Deletion(self._settings, lambda: self._client).delivered(items)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without clients."""
        return {"_settings": self._settings, "_format_settings": self._format_settings}

    @cached_property
    def _format(self) -> Format:
        return format_of(self._format_settings)

    @cached_property
    def _client(self) -> Any:
        return s3_client(self._settings.aws)

    def _fetched(self, item: Item) -> bytes:
        return self._opened(item).stream(0).read(item["size"])

    def _parsed(self, item: Item, data: bytes, position: str) -> Iterator[ReadPage]:
        return self._format.pages(FetchedObject(item["uri"], data), position)

    def _opened(self, item: Item) -> ReadableObject:
        uri, size, version = item["uri"], item["size"], item["version"]
        if is_s3(uri):
            return S3Object(self._client, uri, size, version)
        filesystem, path, _ = open_filesystem(uri)
        return FileObject(filesystem, path, uri, size, version)
