"""The formats of objects: each reads an object as pages of records, and can continue at any page's position."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from airflow_provider_coordination.sources.items import ReadPage
from airflow_provider_coordination.sources.s3.columns import columns_of
from airflow_provider_coordination.sources.s3.csv_format import CsvFormat
from airflow_provider_coordination.sources.s3.format_settings import CSV, PARQUET, TEXT, FormatSettings
from airflow_provider_coordination.sources.s3.lines import DATA_SCHEMA, JsonDataFormat, JsonFormat, TextFormat
from airflow_provider_coordination.sources.s3.object_streams import ReadableObject
from airflow_provider_coordination.sources.s3.parquet_format import ParquetFormat

PAGE_BYTES = 2**20
"""The approximate size of a page in uncompressed bytes."""


class Format(Protocol):
    """A format of records in an object."""

    def pages(self, source: ReadableObject, position: str) -> Iterator[ReadPage]:
        """Yield the records of an object, page by page, each with a position; one or two pages are in memory at a time.

        The records are the same, wherever reading was continued.

        :param source: the object.
        :param position: of the last page that was read; empty for the start.
        :raises ItemUnreadableError: if the object is damaged, or does not fit the settings.
        """
        ...


def columns_before_reading(settings: FormatSettings) -> pa.Schema | None:
    """Return the columns that every object has; None if each one has its own, as Parquet and CSV with a header do."""
    if settings.columns:
        return columns_of(settings.columns).schema
    return None if settings.name in (CSV, PARQUET) else DATA_SCHEMA


def format_of(settings: FormatSettings, page_bytes: int = PAGE_BYTES) -> Format:
    """Return the format that settings name.

    :param page_bytes: the approximate size of a page in uncompressed bytes.
    :raises ConfigurationError: if the columns cannot be parsed.
    """
    columns = columns_of(settings.columns) if settings.columns else None
    if settings.name == CSV:
        return CsvFormat(settings, columns, page_bytes)
    if settings.name == PARQUET:
        return ParquetFormat(columns, page_bytes)
    if settings.name == TEXT:
        return TextFormat(settings.compression, page_bytes)
    if columns is None:
        return JsonDataFormat(settings.compression, page_bytes)
    return JsonFormat(columns, settings.compression, page_bytes)
