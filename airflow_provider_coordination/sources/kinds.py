"""How a kind of source is found by its name; what it is, `source_kind` says.

The package's own kinds are the folders here that have a module `kind`. Others are registered by an entry point of the
group `airflow_provider_coordination.sources`. A Spark cluster may not see entry points, so a job's settings carry
`module:attribute`. A kind that brings only a reader of items needs no registration: its partitions are those of
`sources/item_kind.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError
from airflow_provider_coordination.coordination.registry import Registry, import_attribute
from airflow_provider_coordination.sources.item_kind import ItemKind
from airflow_provider_coordination.sources.items import FrameReader, ItemReader
from airflow_provider_coordination.sources.landed import ProgressFormatError
from airflow_provider_coordination.sources.source_kind import READER, SourceKind


@dataclass(frozen=True, kw_only=True)
class ReadsSettings:
    """What a job reads.

    :param kind: the kind of source.
    :param settings: the kind's own settings, a JSON object; it may hold secrets, and is never shown.
    :param implementation: `module:attribute` of a kind from another package, since a Spark cluster may not see entry
        points; None for the package's own kinds, and for a kind that brings only a reader of items.
    """

    kind: str
    settings: dict[str, Any] = field(default_factory=dict, repr=False)
    implementation: str | None = None

    def source_kind(self) -> SourceKind:
        """Return the kind of source.

        :raises ConfigurationError: if it is not registered, or cannot be imported.
        """
        if self.implementation is None and READER in self.settings:
            return ItemKind(self.kind)
        return get_kind(self.kind, self.implementation)

    def check(self) -> None:
        """Check every value.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        if not self.kind:
            raise ConfigurationError("what is read: field 'kind' must not be empty; name the kind of source")
        self.source_kind().check(self.settings)


KINDS: Registry[SourceKind] = Registry(
    what="kind of source",
    own="airflow_provider_coordination.sources.{name}.kind:KIND",
    group="airflow_provider_coordination.sources",
    interface=SourceKind,
)
"""The registered kinds, by name."""

_found: dict[str, SourceKind | None] = {}
_finding = threading.Lock()


def get_kind(name: str, implementation: str | None = None) -> SourceKind:
    """Return a kind of source, and remember it for the partitions that name it.

    :param implementation: `module:attribute`, if the settings carry it.
    :raises ConfigurationError: if it is not registered, cannot be imported, or has another name.
    """
    with _finding:
        if implementation is not None or (kind := _found.get(name)) is None:
            kind = KINDS.load(name, implementation)
            if kind.name != name:
                raise ConfigurationError(
                    f"kind of source {name!r} has the name {kind.name!r}; register it under that name"
                )
            _found[name] = kind
    return kind


def kind_named(name: str) -> SourceKind:
    """Return a kind of source by its name; one that is not registered brings only a reader of items.

    :raises ConfigurationError: if it is registered, and cannot be imported.
    """
    return get_kind(name) if name in KINDS.names() else ItemKind(name)


def kind_of(progress: Mapping[str, Any]) -> SourceKind | None:
    """Return the kind of source that a partition's progress names; None if it names none, so that no job reads it.

    :raises SourceError: if the kind is not registered, or cannot be imported.
    """
    if "kind" not in progress:
        return None
    name = progress["kind"]
    if not isinstance(name, str):
        raise ProgressFormatError(f"stored progress: field 'kind' must be text; got {name!r}; restore the progress")
    with _finding:
        if name not in _found:
            _found[name] = _registered(name)
        found = _found[name]
    if found is not None:
        return found
    if "items" in progress:
        return ItemKind(name)
    raise SourceError(
        f"stored progress: kind of source {name!r} is not registered; install the distribution that registers it by an "
        f"entry point of the group {KINDS.group!r}"
    )


def reader_of(reads: ReadsSettings) -> ItemReader | FrameReader:
    """Make the reader of items.

    :raises ConfigurationError: if it cannot be imported, or its settings are wrong.
    """
    kind = reads.source_kind()
    if not isinstance(kind, ItemKind):
        raise ConfigurationError(
            f"kind of source {reads.kind!r} is not divided into items, so it has no reader of items"
        )
    name, settings = kind.reader_named(reads.settings)
    factory = import_attribute(name, "reader")
    if hasattr(factory, "from_mapping"):
        return factory.from_mapping(settings)  # type: ignore[no-any-return]
    try:
        return factory(**settings)  # type: ignore[no-any-return]
    except TypeError as error:
        raise ConfigurationError(
            f"reader {name!r} does not accept its settings: {error}; correct 'reader_settings'"
        ) from None


def _registered(name: str) -> SourceKind | None:
    if name not in KINDS.names():
        return None
    try:
        return KINDS.load(name)
    except ConfigurationError as error:
        raise SourceError(str(error)) from error
