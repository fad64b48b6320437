"""Reading objects, on the executors of a Spark job, as pages of records in their format."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.items import (
    Item,
    ItemGoneError,
    ItemReader,
    ReadPage,
    Wait,
)
from airflow_provider_coordination.sources.s3.columns import columns_of
from airflow_provider_coordination.sources.s3.container_formats import AvroFormat, OrcFormat, ParquetFormat
from airflow_provider_coordination.sources.s3.csv_format import CsvFormat
from airflow_provider_coordination.sources.s3.kind import (
    AVRO,
    CSV,
    ORC,
    PARQUET,
    TEXT,
    WITH_COLUMNS,
    FormatSettings,
    S3Objects,
)
from airflow_provider_coordination.sources.s3.object_streams import FetchedObject, FileObject, ReadableObject, S3Object
from airflow_provider_coordination.sources.s3.objects import (
    bucket_and_key,
    delete_delivered,
    folder_of,
    is_s3,
    object_errors,
    open_filesystem,
    s3_client,
)
from airflow_provider_coordination.sources.s3.text_formats import (
    DATA_SCHEMA,
    PAGE_BYTES,
    Format,
    JsonDataFormat,
    JsonDocumentFormat,
    JsonFormat,
    TextFormat,
)


def columns_before_reading(settings: FormatSettings) -> pa.Schema | None:
    """Return the columns that every object has; None if each one may have its own."""
    if settings.columns:
        return columns_of(settings.columns).schema
    return None if settings.name in WITH_COLUMNS else DATA_SCHEMA


def format_of(settings: FormatSettings, page_bytes: int = PAGE_BYTES) -> Format:
    """Return the format that settings name.

    :param page_bytes: the approximate size of a page in uncompressed bytes.
    :raises ConfigurationError: if the columns cannot be parsed.
    """
    columns = columns_of(settings.columns) if settings.columns else None
    if settings.name == CSV:
        return CsvFormat(settings, columns, page_bytes)
    if settings.name == AVRO:
        return AvroFormat(columns, page_bytes)
    if settings.name == ORC:
        return OrcFormat(columns, page_bytes)
    if settings.name == PARQUET:
        return ParquetFormat(columns, page_bytes)
    if settings.name == TEXT:
        return TextFormat(settings.compression, page_bytes)
    if settings.multi_line:
        return JsonDocumentFormat(columns, settings.compression, page_bytes)
    if columns is None:
        return JsonDataFormat(settings.compression, page_bytes)
    return JsonFormat(columns, settings.compression, page_bytes)


class ObjectReader(ItemReader):
    """Reads objects of S3, and files of the filesystems that pyarrow supports.

    :param settings: of the source.
    """

    reads_at_once: int | None = None

    def __init__(self, settings: S3Objects) -> None:
        self._settings = settings
        self._format_settings = settings.format_settings  # read here: executors have no msgspec

    @classmethod
    @override
    def from_mapping(cls, settings: Mapping[str, Any]) -> ObjectReader:
        return cls(S3Objects.from_mapping(settings))

    @override
    def read(self, item: Item, position: str) -> Iterator[ReadPage]:
        return self._format.pages(self._opened(item), position)

    @override
    def columns(self, spark: object) -> pa.Schema | None:
        return columns_before_reading(self._format_settings)

    @override
    def origin(self, item: Item) -> str:
        return str(item["uri"])

    @override
    def reading(self, items: Sequence[Item]) -> AbstractContextManager[ItemReader]:
        if not any(is_s3(item["uri"]) for item in items):
            return nullcontext(self)  # a thread costs more than opening a file
        return ReadAhead(self, items, self._fetched, self._parsed)

    @override
    def waits_for(self, items: Sequence[Item]) -> Wait | None:
        settings = self._settings
        if settings.wait_for is None:
            return None
        for folder in sorted({folder_of(item["uri"]) for item in items}):
            marker = f"{folder}{settings.wait_for}"
            if not self._exists(marker):
                return Wait(
                    reason=f"{marker} does not exist yet",
                    retry_after=settings.wait_delay,
                    max_retries=settings.wait_retries,
                )
        return None

    @override
    def delivered(self, items: Sequence[Item]) -> None:
        if self._settings.delete_on_success:
            delete_delivered(items, lambda: self._client)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without clients."""
        return {"_settings": self._settings, "_format_settings": self._format_settings}

    @cached_property
    def _format(self) -> Format:
        return format_of(self._format_settings)

    @cached_property
    def _client(self) -> Any:
        return s3_client(self._settings.aws)

    def _exists(self, uri: str) -> bool:
        try:
            # Without permission to list the bucket, S3 reports "access denied" for an object that does not exist.
            with object_errors(uri, "look for it", "s3:GetObject and s3:ListBucket"):
                if is_s3(uri):
                    bucket, key = bucket_and_key(uri)
                    self._client.head_object(Bucket=bucket, Key=key)
                    return True
                filesystem, path, _ = open_filesystem(uri)
                return bool(filesystem.get_file_info(path).is_file)
        except ItemGoneError:
            return False

    def _fetched(self, item: Item) -> bytes:
        return self._opened(item).stream(0).read(item["size"])

    def _parsed(self, item: Item, data: bytes, position: str) -> Iterator[ReadPage]:
        return self._format.pages(FetchedObject(item["uri"], data), position)

    def _opened(self, item: Item) -> ReadableObject:
        uri, size, version = item["uri"], item["size"], item["version"]
        if is_s3(uri):
            return S3Object(uri, self._client, size, version)
        filesystem, path, _ = open_filesystem(uri)
        return FileObject(uri, filesystem, path, size, version)


THREADS = 8
AHEAD_OBJECTS = 32
AHEAD_BYTES = 8 * 2**20
"""The maximum number of bytes that are fetched and not parsed yet."""
SMALL_BYTES = 2**20
"""A larger object is read while it is parsed."""


class ReadAhead(ItemReader):
    """Reads the objects of a partition in order, as a context manager: small ones are fetched while others are parsed.

    :param reader: reads the objects that are not fetched ahead.
    :param items: the objects that will be read, in this order.
    :param fetch: returns an object's bytes.
    :param parse: yields the records of an object that was fetched, from a position on.
    """

    def __init__(
        self,
        reader: ItemReader,
        items: Iterable[Item],
        fetch: Callable[[Item], bytes],
        parse: Callable[[Item, bytes, str], Iterator[ReadPage]],
    ) -> None:
        self._reader = reader
        self._fetch = fetch
        self._parse = parse
        self._left = deque(filter(_is_small, items))
        self._fetching: deque[tuple[Item, Future[bytes]]] = deque()
        self._bytes = 0
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="fetch")

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Fetch nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    @override
    def origin(self, item: Item) -> str:
        return self._reader.origin(item)

    @override
    def read(self, item: Item, position: str) -> Iterator[ReadPage]:
        self._top_up()
        if not _is_small(item):
            return self._reader.read(item, position)
        while self._fetching:
            found, fetched = self._fetching.popleft()
            self._bytes -= found["size"]
            if found is item:
                self._top_up()
                return self._parsed(item, fetched, position)
        return self._reader.read(item, position)

    def _parsed(self, item: Item, fetched: Future[bytes], position: str) -> Iterator[ReadPage]:
        yield from self._parse(item, fetched.result(), position)

    def _top_up(self) -> None:
        while self._left and len(self._fetching) < AHEAD_OBJECTS and self._bytes < AHEAD_BYTES:
            item = self._left.popleft()
            self._fetching.append((item, self._pool.submit(self._fetch, item)))
            self._bytes += item["size"]


def _is_small(item: Item) -> bool:
    return bool(item["size"] <= SMALL_BYTES)
