"""A source of your own: your supplier finds the items and your reader reads them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.supplier import Supplier
from airflow_provider_coordination.settings import text_value
from airflow_provider_coordination.sources.connections import ConnectionResolver
from airflow_provider_coordination.sources.function_supplier import PartitionSupplier, pages_of
from airflow_provider_coordination.sources.item_kind import ItemKind
from airflow_provider_coordination.sources.kinds import KINDS, ReadsSettings, get_kind
from airflow_provider_coordination.sources.reads import Connected, Located
from airflow_provider_coordination.sources.source_kind import READER

CONNECTION = "connection"
"""The reader's setting that holds the fields of an Airflow connection."""


@dataclass
class Items(Located):
    """A source of your own, for the `reads` of operators.

    :param kind: the name of this kind of source; its partitions keep it.
    :param reader: `module:class` of the class that reads the items, an `ItemReader` or a `FrameReader`. The job's
        `py_files` bring the module to Spark, unless it is installed there. The job creates the class with its
        `from_mapping`, passing the settings, or with its constructor, passing each setting by name.
    :param reader_settings: the settings of the reader, a JSON object. (templated)
    :param conn_id: an Airflow connection that the reader receives as its setting `connection`: a mapping of
        `conn_type`, `host`, `port`, `schema`, `login`, `password` and `extra` (a mapping). The job's private settings
        file carries it. (templated)
    :param supplier: finds the partitions, for `CreatePartitionsOperator`; None if something else creates them, such as
        `@task.partitions`.
    :param located_by: the names of the reader settings that decide which data is read. A DAG with other values cannot
        share the source.
    :param source: the source's name if the operator sets none; `kind` by default. (templated)
    """

    template_fields: ClassVar[Sequence[str]] = ("reader_settings", "conn_id", "source")
    is_endless: ClassVar[bool] = False

    kind: str
    _: KW_ONLY
    reader: str
    reader_settings: Mapping[str, Any] = field(default_factory=dict)
    conn_id: str | None = None
    supplier: PartitionSupplier | None = field(default=None, repr=False)
    located_by: Sequence[str] = ()
    source: str | None = None

    @property
    def default_source(self) -> str:
        """See `Reads.default_source`."""
        return text_value(self.source) or self.kind

    @property
    @override
    def reads_from(self) -> Mapping[str, Any]:
        chosen = {name: self.reader_settings[name] for name in self.located_by if name in self.reader_settings}
        return {"reader": self.reader, "conn_id": text_value(self.conn_id), **chosen}

    def connect(self, connections: ConnectionResolver) -> Connected:
        """See `Reads.connect`."""
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
