"""The catalog that a table is in. It is waited for while it is away, and a table that it does not have is made.

Nothing here commits data; `addition` does.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.delivery import DeliveryError, SinkAwayError
from airflow_provider_coordination.spark.layout import BATCH_ID
from airflow_provider_coordination.spark.outages import is_refusal
from airflow_provider_coordination.spark.sinks.iceberg.errors import is_away, is_unauthorized
from airflow_provider_coordination.spark.sinks.iceberg.settings import IcebergSettings, PartitionField, partition_fields

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, Transaction

log = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_SECONDS = 60.0
"""How long a catalog that is away is waited for before a delivery fails."""
PAUSE_SECONDS = 1.0
ANSWER_SECONDS = 60.0
"""How long a REST catalog may take to answer; pyiceberg itself waits for ever."""
NAME_MAPPING = "schema.name-mapping.default"
WHOLE_BATCH_IDS = {f"write.metadata.metrics.column.{BATCH_ID}": "full"}
"""By default statistics have the first 16 characters of a text, in which batches of one source are the same."""


class Tables:
    """One table of a catalog.

    :param settings: which.
    :param sink: what errors call the sink, such as `IcebergTable 'main'`.
    :param place: where the table is, for people.
    """

    def __init__(self, settings: IcebergSettings, sink: str, place: str) -> None:
        self._settings = settings
        self._place = place
        self._sink = sink
        self._catalog: Catalog | None = None
        self._uuid: object = None
        self._fitting: tuple[int, pa.Schema | Schema] | None = None  # columns that fit a schema of the table, by its id

    def __str__(self) -> str:
        """Return it by what people call it."""
        return f"Iceberg table {self._settings.table!r}"

    @cached_property
    def partition_fields(self) -> tuple[PartitionField, ...]:
        """What the table is to be partitioned by; nothing says that it is as the table has it."""
        return partition_fields(self._settings.partition_by, self._sink)

    # Reaching it

    def check(self) -> Table | None:
        """Return the table, once it is known that it fits; None if there is none yet, and it can be made.

        :raises ConfigurationError: naming the field, the value, the reason and the remedy.
        """
        try:
            table = self._found()
            _ = table or self.planned_location  # a catalog may say only here that it has no such warehouse
        except Exception as error:
            raise ConfigurationError(
                f"{self._sink}: the catalog at {self._place} cannot be asked for {self}: "
                f"{type(error).__name__}: {_line(error)}; check 'catalog_conn_id' and 'catalog', and that it answers "
                "where the job runs"
            ) from None
        if table is None:
            if self._settings.columns:
                self._checked(lambda: self._made(self._declared()))
            return None
        self._check_partitioning(table)
        self._checked(lambda: self.evolve(table.transaction(), self._declared()) if self._settings.columns else None)
        return table

    def _checked(self, act: Callable[[], object]) -> None:
        try:
            act()
        except ConfigurationError:
            raise
        except Exception as error:
            raise ConfigurationError(f"field 'columns' of {self._sink}: {_line(error)}") from None

    def _check_partitioning(self, table: Table) -> None:
        has = [str(each) for each in fields_of(table)]
        wanted = [str(each) for each in self.partition_fields]
        if wanted and has != wanted:
            raise ConfigurationError(
                f"field 'partition_by' of {self._sink} is {wanted}, and {self} is partitioned by {has or 'nothing'}; "
                "leave the field out, or change the table's partitioning"
            )

    def patiently(self, act: Callable[[], T]) -> T:
        """Do something with the catalog or the table's files; again, for a while, where these do not answer.

        :raises SinkAwayError: if they do not answer for long.
        """
        began = time.monotonic()
        while True:
            try:
                return act()
            except Exception as error:
                self.wait_after(error, began)

    def wait_after(self, error: Exception, began: float) -> None:
        """Wait after an error, if it says that the catalog or the table's files do not answer; raise it if not.

        :param began: when the first such error may have been, by the monotonic clock.
        :raises SinkAwayError: if they do not answer for long, or the catalog refuses the job.
        """
        if is_unauthorized(error):
            raise SinkAwayError(
                f"{self}: its catalog, at {self._place}, refuses the job: {type(error).__name__}: {_line(error)}"
            ) from None
        if not is_away(error) or is_refusal(error):
            raise error
        left = PATIENCE_SECONDS - (time.monotonic() - began)
        if left <= 0:
            raise SinkAwayError(
                f"{self}: its catalog, at {self._place}, or the store of its files does not answer: "
                f"{type(error).__name__}: {_line(error)}"
            ) from None
        log.warning(
            "%s: its catalog, or the store of its files, does not answer; the delivery waits: %s", self, _line(error)
        )
        time.sleep(min(left, PAUSE_SECONDS))

    def find(self) -> Table | None:
        """Return the table as it is now; None if there is none.

        :raises DeliveryError: if it was there and is gone, or another one has its name.
        """
        table = self.patiently(self._found)
        if table is None and self._uuid is not None:
            raise DeliveryError(
                f"{self} was there and is gone: nothing is concluded from that; restore it, or start the job again to "
                "have it made anew"
            )
        return table

    def _found(self) -> Table | None:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            table = self._reached().load_table(self._settings.table)
        except NoSuchTableError:
            return None
        if self._uuid not in (None, table.metadata.table_uuid):
            raise DeliveryError(
                f"{self} is another table than it was when the job began: somebody dropped it and made one of the same "
                "name; start the job again if that is right"
            )
        self._uuid = table.metadata.table_uuid
        return table

    def _reached(self) -> Catalog:
        from pyiceberg.catalog import load_catalog
        from sqlalchemy.exc import DBAPIError

        if self._catalog is None:
            properties = {"pool_pre_ping": "true", **self._settings.properties}
            try:
                self._catalog = load_catalog(self._settings.catalog_name, **properties)
            except DBAPIError:  # two jobs may make the tables of a catalog in a database in the same moment
                self._catalog = load_catalog(self._settings.catalog_name, **properties)
            if (session := getattr(self._catalog, "_session", None)) is not None:
                session.request = partial(session.request, timeout=ANSWER_SECONDS)
        return self._catalog

    def _make_namespace(self, catalog: Catalog) -> None:
        namespace = self._settings.table.rpartition(".")[0]
        try:
            catalog.create_namespace_if_not_exists(namespace)
        except Exception:  # somebody else made it in the same moment
            if not catalog.namespace_exists(namespace):
                raise

    # Making it

    def find_or_make(self, columns: pa.Schema) -> Table:
        """Return the table as it is now; where there is none, make it.

        :param columns: of the first delivery, where the settings declare none.
        :raises DeliveryError: if it cannot have these columns, or cannot be partitioned by what they do not have.
        """
        if (table := self.find()) is not None:
            return table
        return self.patiently(lambda: self._made(self._declared() if self._settings.columns else nullable(columns)))

    def _made(self, columns: pa.Schema | Schema) -> Table:
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
        from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException

        catalog = self._reached()
        self._make_namespace(catalog)
        try:
            making = catalog.create_table_transaction(
                self._settings.table,
                columns,
                self._settings.table_location,
                properties={**WHOLE_BATCH_IDS, **self._settings.table_properties},
            )
            self._partition(making)
            making.set_properties({NAME_MAPPING: making.table_metadata.schema().name_mapping.model_dump_json()})
            making.commit_transaction()
        except (TableAlreadyExistsError, CommitFailedException):  # which depends on the moment
            log.info("%s was made by somebody else", self)
        except (TypeError, ValueError, UnsupportedPyArrowTypeException) as error:
            raise DeliveryError(f"{self} cannot be made with columns {columns}: {_line(error)}") from None
        else:
            log.info("%s is made, at %s", self, making.table_metadata.location)
        table = self._found()
        if table is None:
            raise DeliveryError(f"{self} was made, and is gone; it is made again with the next try")
        return table

    def _partition(self, making: Transaction) -> None:
        columns = making.table_metadata.schema()
        if not self.partition_fields:
            return
        with making.update_spec() as update:
            for each in self.partition_fields:
                if each.column not in columns.column_names:
                    raise DeliveryError(
                        f"{self} cannot be partitioned by {str(each)!r}: there is no column {each.column!r}; there are "
                        f"{', '.join(columns.column_names)}"
                    )
                update.add_field(each.column, each.transform, each.name)

    def _declared(self) -> Schema:
        from pyiceberg.schema import Schema

        columns = {**self._settings.columns}
        columns.setdefault(BATCH_ID, "string")
        fields = [
            {"id": n, "name": name, "type": kind, "required": False}
            for n, (name, kind) in enumerate(columns.items(), 1)
        ]
        try:
            return Schema.model_validate({"type": "struct", "fields": fields})
        except ValueError as error:
            raise ConfigurationError(
                f"field 'columns' of {self._sink}: {columns} are not columns of Iceberg: {_line(error)}; give types "
                "such as 'long', 'string', 'timestamptz' or 'decimal(10, 2)'"
            ) from None

    @cached_property
    def planned_location(self) -> str:
        """Where the table is made if there is none."""

        def plan() -> str:
            from pyiceberg.schema import Schema

            catalog = self._reached()
            self._make_namespace(catalog)
            staged = catalog.create_table_transaction(self._settings.table, Schema(), self._settings.table_location)
            return str(staged.table_metadata.location)

        return self.patiently(plan)

    # Its columns

    def evolve(self, transaction: Transaction, columns: pa.Schema | Schema) -> None:
        """Give the table, in a transaction, the columns of what is added; wider types where Iceberg allows them.

        :raises DeliveryError: naming column and types, if its columns cannot become those.
        """
        from pyiceberg.exceptions import ValidationError
        from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException

        known = (transaction.table_metadata.current_schema_id, columns)
        if known == self._fitting:
            return
        try:
            _check_scales(transaction.table_metadata.schema(), columns)
            with transaction.update_schema() as update:
                update.union_by_name(self._as_required(transaction, columns))
        except (TypeError, ValueError, UnsupportedPyArrowTypeException, ValidationError) as error:
            raise DeliveryError(
                f"{self}: its columns cannot become those of the delivery: {_line(error)}; the batches wait: change "
                "the table or the transform"
            ) from None
        if transaction.table_metadata.current_schema_id == known[0]:
            self._fitting = known

    def _as_required(self, transaction: Transaction, columns: pa.Schema | Schema) -> pa.Schema | Schema:
        """Return columns that are required where the table's are: a file that has no nulls need not say so."""
        if not isinstance(columns, pa.Schema):
            return columns
        required = {field.name for field in transaction.table_metadata.schema().fields if field.required}
        return pa.schema([field.with_nullable(field.name not in required) for field in columns])


def _check_scales(schema: Schema, columns: pa.Schema | Schema) -> None:
    """Check that decimals have the scale that the table has: pyiceberg takes another one for the same.

    :raises ValueError: naming column and types.
    """
    from pyiceberg.types import DecimalType

    for path, precision, scale in _decimals(columns):
        kind = schema.find_type(path) if path in schema.column_names else None
        if isinstance(kind, DecimalType) and kind.scale != scale:
            raise ValueError(f"Cannot change column type: {path}: {kind} -> decimal({precision}, {scale})")


def _decimals(columns: pa.Schema | Schema) -> Iterator[tuple[str, int, int]]:
    """Yield the path of each decimal as Iceberg names it, and its precision and scale."""
    from pyiceberg.types import DecimalType

    if not isinstance(columns, pa.Schema):
        kinds = ((path, columns.find_type(path)) for path in columns.column_names)
        yield from ((path, kind.precision, kind.scale) for path, kind in kinds if isinstance(kind, DecimalType))
        return
    left = [(field.name, field.type) for field in columns]
    while left:
        path, kind = left.pop()
        if pa.types.is_decimal(kind):
            yield path, kind.precision, kind.scale
        elif pa.types.is_struct(kind):
            left += [(f"{path}.{field.name}", field.type) for field in kind]
        elif pa.types.is_map(kind):
            left += [(f"{path}.key", kind.key_type), (f"{path}.value", kind.item_type)]
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            left.append((f"{path}.element", kind.value_type))


def nullable(columns: pa.Schema) -> pa.Schema:
    """Return columns that may be null: a later delivery may not have them."""
    return pa.schema([field.with_nullable(True) for field in columns])


def fields_of(table: Table) -> list[PartitionField]:
    """Return what a table is partitioned by."""
    schema = table.schema()
    return [
        PartitionField(
            name=field.name, column=schema.find_column_name(field.source_id) or "", transform=str(field.transform)
        )
        for field in table.spec().fields
    ]


def _line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def settings_of(values: dict[str, Any], sink: str) -> IcebergSettings:
    """Return the settings of a table.

    :raises ConfigurationError: naming the field.
    """
    from airflow_provider_coordination.settings import read_settings

    settings = read_settings(IcebergSettings, sink, values)
    settings.check(sink)
    return settings
