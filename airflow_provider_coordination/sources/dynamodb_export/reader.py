"""Reading the files of a point-in-time export."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import pyarrow as pa

from airflow_provider_coordination.settings import read_settings
from airflow_provider_coordination.sources.dynamodb.documents import plain_json
from airflow_provider_coordination.sources.dynamodb.settings import DynamoDBExportSettings
from airflow_provider_coordination.sources.dynamodb_export.files import ExportPlace
from airflow_provider_coordination.sources.items import Item, ItemUnreadableError, ReadPage
from airflow_provider_coordination.sources.s3.format_settings import AUTO
from airflow_provider_coordination.sources.s3.formats import PAGE_BYTES
from airflow_provider_coordination.sources.s3.lines import DATA, JsonDataFormat

RECORD_SCHEMA = pa.schema([pa.field(DATA, pa.string())])
"""`data` holds the item as plain JSON."""


class ExportReader:
    """Reads data files, page by page; an `ItemReader`.

    A position is a number of plain bytes, as that of JSON lines in S3 is: a file that is read on is decompressed from
    its beginning.

    :param settings: what is read.
    :param page_bytes: about how many plain bytes make a page.
    """

    reads_at_once: int | None = None

    def __init__(self, settings: DynamoDBExportSettings, page_bytes: int = PAGE_BYTES) -> None:
        self._settings = settings
        self._lines = JsonDataFormat(AUTO, page_bytes)
        self._page_bytes = page_bytes

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any]) -> ExportReader:
        """Make it from its settings.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        return cls(read_settings(DynamoDBExportSettings, "DynamoDB export settings", settings))

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel without the client, which cannot."""
        return ExportReader, (self._settings, self._page_bytes)

    @cached_property
    def _place(self) -> ExportPlace:
        return ExportPlace(self._settings.s3)

    def origin(self, item: Item) -> str:
        """See `ItemReader.origin`: the file's URI."""
        return str(item["uri"])

    def read(self, item: Item, position: str) -> Iterator[ReadPage]:
        """See `ItemReader.read`.

        :raises ItemGoneError: if the file is not there.
        :raises ItemUnreadableError: if another one is there, or it is damaged, or no export in DynamoDB's JSON.
        """
        source = self._place.open(item["uri"], item["version"])
        for page in self._lines.pages(source, position):
            items = [_item(line) for line in page.records.column(DATA).to_pylist()]
            yield ReadPage(pa.table([pa.array(items, pa.string())], schema=RECORD_SCHEMA), page.position)


def _item(line: bytes) -> str:
    try:
        attributes = json.loads(line)["Item"]
    except (KeyError, TypeError, ValueError):
        raise ItemUnreadableError(
            f'a line of it is not an item in DynamoDB\'s JSON, as {{"Item": {{...}}}}; it begins with {line[:60]!r}'
        ) from None
    return plain_json(attributes)
