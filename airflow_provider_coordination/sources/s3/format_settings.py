"""The format of a source's objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider_coordination.settings import FieldError

CSV, JSON, PARQUET, TEXT = "csv", "json", "parquet", "text"
FORMATS = (CSV, JSON, PARQUET, TEXT)
AUTO, NONE = "auto", "none"
CODECS: Mapping[str, tuple[str, ...]] = {
    "bzip2": (".bz2",),
    "gzip": (".gz", ".gzip"),
    "lz4": (".lz4",),
    "snappy": (".snappy",),
    "zstd": (".zst", ".zstd"),
}
"""The compressions and their file name suffixes. Snappy and LZ4 have several formats: snappy is Hadoop's, which Spark
writes, and LZ4 is the format of the `lz4` command."""


@dataclass(frozen=True, kw_only=True)
class FormatSettings:
    """The format of objects.

    Without `columns`, text and JSON become one column `data` of bytes, like a Kinesis record, which the job's `schema`
    or transform parses. CSV becomes columns of text, named by the header; Parquet has its own columns.

    :param name: `csv`, `json` (one JSON object a line), `parquet` or `text` (one record a line).
    :param compression: `auto` (by the suffix of the name), `none`, or the name of one. Parquet stores its own.
    :param columns: the columns and their types, as `id BIGINT, name STRING`; None or empty for the format's own. An
        object without one of them cannot be read. Other fields of JSON and other columns of Parquet are left out.
    :param header: whether the first row of each CSV names the columns.
    :param delimiter: between the values of CSV; one character.
    :param quote: around a value of CSV that holds delimiters, ends of lines, or itself twice; empty for none.
    :param escape: before a character of CSV that has no special meaning; empty for none.
    :param null_values: the texts that mean null in CSV, unless they are quoted.
    """

    name: str = JSON
    compression: str = AUTO
    columns: str | None = None
    header: bool = True
    delimiter: str = ","
    quote: str = '"'
    escape: str = ""
    null_values: tuple[str, ...] = ("",)

    def check(self) -> None:
        """Check every value.

        :raises FieldError: naming the field, the value and the remedy.
        """
        if self.name not in FORMATS:
            raise _invalid("name", self.name, f"must be one of {', '.join(FORMATS)}")
        if self.compression not in (AUTO, NONE, *CODECS):
            raise _invalid("compression", self.compression, f"must be one of {AUTO}, {NONE}, {', '.join(CODECS)}")
        if self.name == PARQUET and self.compression not in (AUTO, NONE):
            raise _invalid("compression", self.compression, f"must be {AUTO} for Parquet, which stores it itself")
        self._check_columns()
        if self.name == CSV:
            self._check_csv()

    def _check_columns(self) -> None:
        if not self.columns:
            if self.name == CSV and not self.header:
                raise _invalid("columns", self.columns, "must name the columns of a CSV that has no header")
            return
        if self.name == TEXT:
            raise _invalid("columns", self.columns, "must be left out for text, which only has the column 'data'")
        # Imported here, since DAG files import this module and must not load Arrow.
        from airflow_provider_coordination.sources.s3.columns import columns_of

        if self.name == CSV and not columns_of(self.columns).is_flat:
            raise _invalid(
                "columns", self.columns, "must not contain ARRAY, STRUCT or BINARY, which CSV does not support"
            )
        columns_of(self.columns)

    def _check_csv(self) -> None:
        for name in ("delimiter", "quote", "escape"):
            value = getattr(self, name)
            if name != "delimiter" and not value:
                continue
            if len(value) != 1 or not value.isascii() or value in "\r\n\0":
                raise _invalid(name, value, "must be one ASCII character, and not a line break")
        given = [value for value in (self.delimiter, self.quote, self.escape) if value]
        if len(set(given)) < len(given):
            raise _invalid(
                "delimiter", self.delimiter, "must differ from 'quote' and 'escape', and those from each other"
            )


def _invalid(name: str, value: object, remedy: str) -> FieldError:
    return FieldError("FormatSettings", name, f"{remedy}; got {value!r}")
