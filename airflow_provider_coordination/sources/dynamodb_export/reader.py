"""Reading the files of a point-in-time export."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import pyarrow as pa

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.dynamodb.documents import plain_json
from airflow_provider_coordination.sources.dynamodb_export.files import ExportStorage
from airflow_provider_coordination.sources.dynamodb_export.settings import DynamoDBExport
from airflow_provider_coordination.sources.items import Item, ItemUnreadableError, KnowsColumns, ReadPage
from airflow_provider_coordination.sources.s3.format_settings import AUTO
from airflow_provider_coordination.sources.s3.formats import PAGE_BYTES
from airflow_provider_coordination.sources.s3.lines import DATA, JsonDataFormat

RECORD_SCHEMA = pa.schema([pa.field(DATA, pa.string())])
"""`data` is the item as plain JSON."""


class ExportReader(KnowsColumns):
    """Reads data files, page by page; an `ItemReader`.

    A position is a number of uncompressed bytes, as for JSON lines in S3: a file is decompressed from its start
    when reading continues.

    :param settings: of the source.
    :param page_bytes: the approximate size of a page in uncompressed bytes.
    """

    reads_at_once: int | None = None

    def __init__(self, settings: DynamoDBExport, page_bytes: int = PAGE_BYTES) -> None:
        self._settings = settings
        self._lines = JsonDataFormat(AUTO, page_bytes)
        self._page_bytes = page_bytes

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any]) -> ExportReader:
        """Make it from its settings.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        return cls(DynamoDBExport.from_mapping(settings))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the client."""
        return ExportReader, (self._settings, self._page_bytes)

    @cached_property
    def _storage(self) -> ExportStorage:
        return ExportStorage(self._settings.s3)

    @override
    def columns(self, spark: object) -> pa.Schema:
        return RECORD_SCHEMA

    def origin(self, item: Item) -> str:
        """See `ItemReader.origin`: the file's URI."""
        return str(item["uri"])

    def read(self, item: Item, position: str) -> Iterator[ReadPage]:
        """See `ItemReader.read`.

        :raises ItemGoneError: if the file does not exist.
        :raises ItemUnreadableError: if it was replaced, is damaged, or is not an export in DynamoDB's JSON.
        """
        source = self._storage.open(item["uri"], item["version"])
        for page in self._lines.pages(source, position):
            items = [_item(line) for line in page.records.column(DATA).to_pylist()]
            yield ReadPage(pa.table([pa.array(items, pa.string())], schema=RECORD_SCHEMA), page.position)


def _item(line: bytes) -> str:
    try:
        attributes = json.loads(line)["Item"]
    except (KeyError, TypeError, ValueError):
        raise ItemUnreadableError(
            f'a line is not an item in DynamoDB\'s JSON, as {{"Item": {{...}}}}; it begins with {line[:60]!r}'
        ) from None
    return plain_json(attributes)
