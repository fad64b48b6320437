"""Which reader reads which kind of source, known by name: what is not used is not imported."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.item_kind import ItemKind
from airflow_provider_coordination.sources.items import FrameReader, ItemReader
from airflow_provider_coordination.sources.kinds import kind_named


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
        """Check that the kind is known, or that it brings its reader.

        :raises ConfigurationError: naming the kinds that are known.
        """
        if self.reader is None:
            _ = _reader_of_kind(self.kind)


def _reader_of_kind(kind: str) -> str:
    found = kind_named(kind)
    if not isinstance(found, ItemKind) or found.reader is None:
        raise ConfigurationError(f"reader settings: kind {kind!r} has no reader of items; give 'reader'")
    return found.reader


def reader_of(settings: ReaderSettings) -> ItemReader | FrameReader:
    """Make a reader.

    :raises ConfigurationError: if it cannot be imported, or its settings are wrong.
    """
    name = settings.reader or _reader_of_kind(settings.kind)
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
