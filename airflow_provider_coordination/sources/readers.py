"""Which reader reads which kind of source, known by name: what is not used is not imported."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.items import FrameReader, ItemReader

READERS: Mapping[str, str] = {
    "dynamodb": "dynamodb.reader:SegmentReader",
    "dynamodb_export": "dynamodb.export:ExportReader",
    "jdbc": "jdbc.reader:RangeReader",
    "opensearch": "opensearch.reader:SliceReader",
    "s3": "s3.reader:ObjectReader",
}
"""The readers of this package by kind of source, as `module:class` below `airflow_provider_coordination.sources`.

Each class is made from its settings by `from_mapping`, which raises `ConfigurationError`.
"""


@dataclass(frozen=True, kw_only=True)
class ReaderSettings:
    """What reads a source.

    :param kind: the kind of source.
    :param settings: the reader's own settings, a JSON object; may hold secrets, and is never shown.
    :param reader: `module:class` of a reader that is not this package's; None for the one of the kind.
    """

    kind: str
    settings: dict[str, Any] = field(default_factory=dict, repr=False)
    reader: str | None = None

    def check(self) -> None:
        """Check that there is such a kind.

        :raises ConfigurationError: naming the kinds there are.
        """
        if self.reader is None and self.kind not in READERS:
            raise ConfigurationError(
                f"reader settings: field 'kind' must be one of {', '.join(map(repr, READERS))}, or 'reader' given; got "
                f"{self.kind!r}"
            )


def reader_of(settings: ReaderSettings) -> ItemReader | FrameReader:
    """Make a reader.

    :raises ConfigurationError: if it cannot be imported, or its settings are wrong.
    """
    settings.check()
    name = settings.reader or f"airflow_provider_coordination.sources.{READERS[settings.kind]}"
    module_name, _, class_name = name.partition(":")
    try:
        made = getattr(importlib.import_module(module_name), class_name)
    except Exception as error:  # a module may raise anything while it is imported
        raise ConfigurationError(
            f"reader {name!r} cannot be imported: {type(error).__name__}: {error}; ship its module with 'py_files'"
        ) from error
    if hasattr(made, "from_mapping"):
        return made.from_mapping(settings.settings)  # type: ignore[no-any-return]
    try:
        return made(**settings.settings)  # type: ignore[no-any-return]
    except TypeError as error:
        raise ConfigurationError(f"reader {name!r}: its settings do not fit: {error}") from None
