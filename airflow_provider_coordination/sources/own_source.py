"""Your own source: your supplier finds the items and your reader reads them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, Protocol

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.supplier import Page, Supplier
from airflow_provider_coordination.settings import text_value
from airflow_provider_coordination.sources.connections import ConnectionResolver
from airflow_provider_coordination.sources.item_kind import ItemKind
from airflow_provider_coordination.sources.items import Item, PartitionProgress
from airflow_provider_coordination.sources.kinds import KINDS, ReadsSettings, get_kind
from airflow_provider_coordination.sources.reads import Connected, Reads
from airflow_provider_coordination.sources.source_kind import READER

PAGE_SIZE = 100
"""The number of single partitions that are created together."""
KEY = "key"

Supplied = str | Item | Page | Iterable[str | Item]
"""A value that a supplier yields: a key, an item, or a page of them; see `PartitionSupplier`."""


class PartitionSupplier(Protocol):
    """Finds the partitions of a user's own source.

    What it yields becomes partitions. Existing partitions do not change, so it may yield everything each time.
    One process of the fleet runs it at a time. It may be interrupted between any two pages.
    """

    def __call__(self, state: Mapping[str, Any], /) -> Iterable[Supplied]:
        """Yield what there is to read.

        - a text: the key of a partition with the one item `{"key": <the key>}`;
        - a mapping: the one item of a partition, for the reader. Its `key` names the partition; without `key`, a
          digest of the item does;
        - a list, or any iterable, of these: a page, which is created before the next value is requested;
        - a `Page`, for partitions of several items, and to store a state: its `partitions` map a key to an item or a
          list of items.

        :param state: the state of the last `Page` that had one, in this run or an earlier one; empty at first.
        """
        ...


def pages_of(supplied: Iterable[Supplied], kind: str | None) -> Generator[Page]:
    """Yield pages of partitions as a coordinator creates them.

    :param supplied: what a supplier yields.
    :param kind: the kind of source; None for partitions that no Spark job reads: their progress is then the item.
    :raises ConfigurationError: if a yielded value cannot become a partition.
    """
    waiting: dict[str, Mapping[str, Any]] = {}
    for each in supplied:
        if isinstance(each, str | Mapping):
            waiting.update([_partition(each, kind)])
            if len(waiting) < PAGE_SIZE:
                continue
        if waiting:
            yield Page(waiting)
            waiting = {}
        if isinstance(each, Page):
            yield replace(each, partitions={key: _progress(items, kind) for key, items in each.partitions.items()})
        elif not isinstance(each, str | Mapping):
            yield from _pages(each, kind)
    if waiting:
        yield Page(waiting)


def _pages(supplied: Any, kind: str | None) -> Iterator[Page]:
    if not isinstance(supplied, Iterable) or isinstance(supplied, bytes):
        raise _not_usable(supplied)
    page = dict(_partition(each, kind) for each in supplied)
    if page:
        yield Page(page)


def _partition(supplied: Any, kind: str | None) -> tuple[str, Mapping[str, Any]]:
    """Return the key and the first progress of a partition of one item."""
    if isinstance(supplied, str):
        return supplied, _progress({KEY: supplied} if kind else {}, kind)
    if not isinstance(supplied, Mapping):
        raise _not_usable(supplied)
    key = supplied.get(KEY)
    return (key if isinstance(key, str) and key else _digest(supplied)), _progress(supplied, kind)


def _progress(items: Any, kind: str | None) -> Mapping[str, Any]:
    """Return the first progress of a partition of these items."""
    if kind is None:
        if not isinstance(items, Mapping):
            raise _not_usable(items)
        return items
    several = items if isinstance(items, list | tuple) else (items,)
    if not several or not all(isinstance(item, Mapping) for item in several):
        raise _not_usable(items)
    return PartitionProgress(kind=kind, items=tuple(dict(item) for item in several)).to_mapping()


def _digest(item: Item) -> str:
    try:
        text = json.dumps(item, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"item {_shown(item)} cannot be written as JSON: {error}; use JSON values only"
        ) from None
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _not_usable(supplied: Any) -> ConfigurationError:
    return ConfigurationError(
        f"a supplier must yield keys, items (mappings), lists of these, or pages; got {_shown(supplied)} of type "
        f"{type(supplied).__name__}"
    )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"


CONNECTION = "connection"
"""The reader's setting that holds the fields of an Airflow connection."""


@dataclass
class Items(Reads):
    """Your own source, for the `reads` of operators.

    :param kind: the name of this kind of source. Its partitions keep it, and a job of another kind refuses them.
    :param reader: `module:class` of the class that reads the items, an `ItemReader` or a `FrameReader`. The job's
        `py_files` bring the module to Spark, unless it is installed there. The job creates the class with its
        `from_mapping`, passing the settings, or with its constructor, passing each setting by name.
    :param reader_settings: the settings of the reader, a JSON object. (templated)
    :param conn_id: an Airflow connection that the reader receives as its setting `connection`, with `conn_type`,
        `host`, `port`, `schema`, `login`, `password` and `extra`, a mapping. The job's private settings file carries
        it. (templated)
    :param supplier: finds the partitions, for `CreatePartitionsOperator`; None if something else creates them, such as
        `@task.partitions`.
    :param located_by: the names of the reader settings that decide which data is read. A DAG with other values cannot
        share the source.
    :param source: the source's name if the operator sets none; `kind` by default. (templated)
    """

    template_fields: ClassVar[Sequence[str]] = ("reader_settings", "conn_id", "source")

    kind: str
    _: KW_ONLY
    reader: str
    reader_settings: Mapping[str, Any] = field(default_factory=dict)
    conn_id: str | None = None
    supplier: PartitionSupplier | None = field(default=None, repr=False)
    located_by: Sequence[str] = ()
    source: str | None = None

    @property
    @override
    def default_source(self) -> str:
        return text_value(self.source) or self.kind

    @property
    @override
    def reads_from(self) -> Mapping[str, Any]:
        chosen = {name: self.reader_settings[name] for name in self.located_by if name in self.reader_settings}
        return {"reader": self.reader, "conn_id": text_value(self.conn_id), **chosen}

    @override
    def connect(self, connections: ConnectionResolver) -> Connected:
        if not self.kind:
            raise ConfigurationError("Items: field 'kind' must not be empty; name the kind of source")
        if self.kind in KINDS.names() and not isinstance(get_kind(self.kind), ItemKind):
            raise ConfigurationError(
                f"Items: field 'kind' is {self.kind!r}, which is a built-in kind of source; give another name"
            )
        if len([part for part in self.reader.split(":") if part]) != 2:
            raise ConfigurationError(
                f"Items: field 'reader' must be of the form 'module:class', for example 'my_project.readers:Weather'; "
                f"got {self.reader!r}"
            )
        settings = dict(self.reader_settings)
        if conn_id := text_value(self.conn_id):
            values = connections.values(conn_id, f"Items: connection {conn_id!r}")
            settings[CONNECTION] = dataclasses.asdict(values)
        given = {READER: self.reader, "reader_settings": settings}
        return Connected(reads=ReadsSettings(kind=self.kind, settings=given), supplier=self._supplier)

    def _supplier(self, coordinator: SourceCoordinator) -> Supplier:
        supplier, kind = self.supplier, self.kind
        if supplier is None:
            raise ConfigurationError(
                f"Items: kind {self.kind!r} has no supplier for source {coordinator.source!r}; give 'supplier', or "
                "create the partitions with @task.partitions or the 'partitions' of CreatePartitionsOperator"
            )
        finds: Callable[[Mapping[str, Any]], Any] = supplier
        return lambda state: pages_of(finds(state), kind)
