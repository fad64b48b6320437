"""The catalog of a table. Calls are retried while it is unavailable, and a missing table is created.

Catalogs raise the errors of their libraries: SQLAlchemy's for databases, those of pyiceberg and requests for REST
catalogs, and botocore's for Glue. Nothing here commits data; `snapshots` does that.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from airflow_provider_coordination.aws import ACCESS_CODES
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.delivery import DeliveryError, SinkUnavailableError
from airflow_provider_coordination.spark.layout import BATCH_ID
from airflow_provider_coordination.spark.outages import is_refusal
from airflow_provider_coordination.spark.writes.iceberg import (
    WRITABLE_VERSIONS,
    IcebergTable,
    PartitionField,
    partition_fields,
)

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.name_mapping import MappedField


log = logging.getLogger(__name__)

T = TypeVar("T")

OUTAGE_WAIT_SECONDS = 60.0
"""How long to wait for an unavailable catalog before a delivery fails."""
RETRY_PAUSE_SECONDS = 1.0
RESPONSE_TIMEOUT_SECONDS = 60.0
"""How long to wait for a response of a REST catalog; pyiceberg itself has no timeout."""
NAME_MAPPING = "schema.name-mapping.default"
WHOLE_BATCH_IDS = {f"write.metadata.metrics.column.{BATCH_ID}": "full"}
"""By default, statistics keep the first 16 characters of a text, which are the same for all batches of a source."""


class CatalogTable:
    """One table of a catalog.

    :param settings: the table, and how to reach its catalog.
    :param sink: the name of the sink in errors, such as `IcebergTable 'main'`.
    :param location: the location of the table, for display.
    """

    def __init__(self, settings: IcebergTable, sink: str, location: str) -> None:
        self._settings = settings
        self._location = location
        self._sink = sink
        self._catalog: Catalog | None = None
        self._uuid: object = None
        self._known_fit: tuple[int, pa.Schema | Schema] | None = (
            None  # columns that fit the table, by the id of its schema
        )

    def __str__(self) -> str:
        """Return the display name."""
        return f"Iceberg table {self._settings.table!r}"

    @cached_property
    def partition_fields(self) -> tuple[PartitionField, ...]:
        """The partitioning in the settings, which may differ from the table's own."""
        return partition_fields(self._settings.partition_by, self._sink)

    # Access

    def check(self) -> Table | None:
        """Check the table; return it, or None if it does not exist yet and can be created.

        :raises ConfigurationError: naming the field, the value, the reason and the remedy.
        :raises SinkUnavailableError: if the catalog is unavailable at present.
        """
        try:
            table = self._load()
            _ = table or self.planned_location  # some catalogs report only here that the warehouse is unknown
        except Exception as error:
            is_away = _is_away(error)
            raise (SinkUnavailableError if is_away else ConfigurationError)(
                f"{self._sink}: the catalog at {self._location} cannot be queried for {self}"
                f"{' at present' if is_away else ''}: {type(error).__name__}: {_line(error)}; "
                f"{'run again after the outage, or ' if is_away else ''}check 'catalog_conn_id' and 'catalog', and "
                "that the catalog can be reached where the job runs"
            ) from None
        if table is None:
            if self._settings.columns:
                self._checked(lambda: self._create(self._declared()))
            return None
        if problem := self._unwritable(table):
            raise ConfigurationError(f"{self._sink}: field 'table': {problem}")
        self._check_partitioning(table)
        self._checked(lambda: self.evolve(table.transaction(), self._declared()) if self._settings.columns else None)
        return table

    def _checked(self, act: Callable[[], object]) -> None:
        try:
            act()
        except ConfigurationError:
            raise
        except Exception as error:
            if _is_away(error):
                raise SinkUnavailableError(f"{self._sink}: {_line(error)}; run again after the outage") from None
            raise ConfigurationError(f"{self._sink}: field 'columns': {_line(error)}") from None

    def _unwritable(self, table: Table) -> str | None:
        if (version := table.metadata.format_version) in WRITABLE_VERSIONS:
            return None
        return (
            f"{self} has format version {version}, which pyiceberg cannot write; deliver into a table of format "
            "version 2: a table's version cannot be lowered"
        )

    def _check_partitioning(self, table: Table) -> None:
        has = [str(each) for each in fields_of(table)]
        wanted = [str(each) for each in self.partition_fields]
        if wanted and has != wanted:
            raise ConfigurationError(
                f"{self._sink}: field 'partition_by' is {wanted}, but {self} is partitioned by {has or 'nothing'}; "
                "leave the field out, or change the table's partitioning"
            )

    def with_retries(self, act: Callable[[], T]) -> T:
        """Run a call to the catalog or the table's files; retry it for a while if they are unavailable.

        :raises SinkUnavailableError: if they stay unavailable.
        """
        began = time.monotonic()
        while True:
            try:
                return act()
            except Exception as error:
                self.wait_after(error, began)

    def wait_after(self, error: Exception, began: float) -> None:
        """Wait if an error means that the catalog or the table's files are unavailable; raise any other error.

        :param began: when the first such error may have occurred, by the monotonic clock.
        :raises SinkUnavailableError: if they stay unavailable, or the catalog refuses access.
        """
        if is_unauthorized(error):
            raise SinkUnavailableError(
                f"{self}: its catalog, at {self._location}, denies access: {type(error).__name__}: {_line(error)}; "
                "check the credentials in 'catalog_conn_id' or 'catalog', and their permissions"
            ) from None
        if not _is_away(error):
            raise error
        left = OUTAGE_WAIT_SECONDS - (time.monotonic() - began)
        if left <= 0:
            raise SinkUnavailableError(
                f"{self}: its catalog, at {self._location}, or the store of its files is unavailable: "
                f"{type(error).__name__}: {_line(error)}"
            ) from None
        log.warning(
            "%s: its catalog, or the store of its files, is unavailable; the delivery waits: %s", self, _line(error)
        )
        time.sleep(min(left, RETRY_PAUSE_SECONDS))

    def find(self) -> Table | None:
        """Return the current table; None if it does not exist.

        :raises DeliveryError: if the table existed before, and is now gone or replaced by another table.
        """
        table = self.with_retries(self._load)
        if table is None and self._uuid is not None:
            raise DeliveryError(
                f"{self} was dropped after the job began; restore it, or start the job again, which creates a new table"
            )
        return table

    def find_writable(self) -> Table | None:
        """Return the current table as `find` does; a version of the format that cannot be written is an error too."""
        if (table := self.find()) is not None and (problem := self._unwritable(table)):
            raise DeliveryError(problem)
        return table

    def _load(self) -> Table | None:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            table = self._open_catalog().load_table(self._settings.table)
        except NoSuchTableError:
            return None
        if self._uuid not in (None, table.metadata.table_uuid):
            raise DeliveryError(
                f"{self} is not the table that it was when the job began: it was dropped and created again under the "
                "same name; start the job again if that is intended"
            )
        self._uuid = table.metadata.table_uuid
        return table

    def _open_catalog(self) -> Catalog:
        from pyiceberg.catalog import load_catalog
        from sqlalchemy.exc import DBAPIError

        if self._catalog is None:
            properties = {"pool_pre_ping": "true", **self._settings.properties}
            try:
                self._catalog = load_catalog(self._settings.catalog_name, **properties)
            except DBAPIError:  # two jobs may create the tables of a catalog's database at the same moment
                self._catalog = load_catalog(self._settings.catalog_name, **properties)
            if (session := getattr(self._catalog, "_session", None)) is not None:
                session.request = partial(session.request, timeout=RESPONSE_TIMEOUT_SECONDS)
        return self._catalog

    def _make_namespace(self, catalog: Catalog) -> None:
        namespace = self._settings.table.rpartition(".")[0]
        try:
            catalog.create_namespace_if_not_exists(namespace)
        except Exception:  # another process created it at the same moment
            if not catalog.namespace_exists(namespace):
                raise

    # Creation

    def find_or_create(self, columns: pa.Schema) -> Table:
        """Return the current table; create it if it does not exist.

        :param columns: the columns of the first delivery, used if the settings declare none.
        :raises DeliveryError: if the table cannot have these columns, or they lack a partition column.
        """
        if (table := self.find_writable()) is not None:
            return table
        return self.with_retries(
            lambda: self._create(self._declared() if self._settings.columns else nullable(columns))
        )

    def _create(self, columns: pa.Schema | Schema) -> Table:
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
        from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException
        from pyiceberg.schema import Schema

        catalog = self._open_catalog()
        self._make_namespace(catalog)
        try:
            _check_spelling(Schema(), columns)
            making = catalog.create_table_transaction(
                self._settings.table,
                columns,
                self._settings.location,
                properties={**WHOLE_BATCH_IDS, **self._settings.table_properties},
            )
            self._partition(making)
            making.set_properties({NAME_MAPPING: making.table_metadata.schema().name_mapping.model_dump_json()})
            making.commit_transaction()
        except (TableAlreadyExistsError, CommitFailedException):  # which one depends on the timing
            log.info("%s was created by another process", self)
        except (TypeError, ValueError, UnsupportedPyArrowTypeException) as error:
            fields = columns if isinstance(columns, pa.Schema) else columns.fields
            named = ", ".join(
                str(field) if not isinstance(field, pa.Field) else f"{field.name} {field.type}" for field in fields
            )
            raise DeliveryError(f"{self} cannot be created: {_line(error)}; its columns are {named}") from None
        else:
            log.info("%s was created at %s", self, making.table_metadata.location)
        table = self._load()
        if table is None:
            raise DeliveryError(f"{self} was created, but is gone; the next try creates it again")
        return table

    def _partition(self, making: Transaction) -> None:
        columns = making.table_metadata.schema()
        if not self.partition_fields:
            return
        with making.update_spec() as update:
            for each in self.partition_fields:
                if each.column not in columns.column_names:
                    raise DeliveryError(
                        f"{self} cannot be partitioned by {str(each)!r}: there is no column {each.column!r}; the "
                        f"columns are {', '.join(columns.column_names)}"
                    )
                try:
                    update.add_field(each.column, each.transform, each.name)
                except ValueError as error:
                    kind = columns.find_type(each.column)
                    raise DeliveryError(
                        f"{self} cannot be partitioned by {str(each)!r}: column {each.column!r} is {kind}: "
                        f"{_line(error)}; choose another transform"
                    ) from None

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
                f"{self._sink}: field 'columns': {columns} are not Iceberg columns: {_line(error)}; give types "
                "such as 'long', 'string', 'timestamptz' or 'decimal(10, 2)'"
            ) from None

    @cached_property
    def planned_location(self) -> str:
        """The location at which a missing table would be created."""

        def plan() -> str:
            from pyiceberg.schema import Schema

            catalog = self._open_catalog()
            self._make_namespace(catalog)
            staged = catalog.create_table_transaction(self._settings.table, Schema(), self._settings.location)
            return str(staged.table_metadata.location)

        return self.with_retries(plan)

    # Columns

    def evolve(self, transaction: Transaction, columns: pa.Schema | Schema) -> None:
        """Add the columns of new data to the table in a transaction; widen types where Iceberg allows it.

        :raises DeliveryError: naming column and types, if the table cannot accept the columns.
        """
        from pyiceberg.exceptions import ValidationError
        from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException

        known = (transaction.table_metadata.current_schema_id, columns)
        if known == self._known_fit:
            return
        try:
            _check_types(transaction.table_metadata.schema(), columns)
            _check_spelling(transaction.table_metadata.schema(), columns)
            _check_renamed(transaction.table_metadata, columns)
            with transaction.update_schema() as update:
                update.union_by_name(self._as_required(transaction, columns))
        except (TypeError, ValueError, UnsupportedPyArrowTypeException, ValidationError) as error:
            raise DeliveryError(
                f"{self}: its columns cannot be changed to fit the records: {_line(error)}; change the table or the "
                "transform; the batches wait until then"
            ) from None
        if transaction.table_metadata.current_schema_id == known[0]:
            self._known_fit = known

    def _as_required(self, transaction: Transaction, columns: pa.Schema | Schema) -> pa.Schema | Schema:
        """Return the columns as required if the table's are: a file without nulls need not declare it."""
        if not isinstance(columns, pa.Schema):
            return columns
        required = {field.name for field in transaction.table_metadata.schema().fields if field.required}
        return pa.schema([field.with_nullable(field.name not in required) for field in columns])


def _check_types(schema: Schema, columns: pa.Schema | Schema) -> None:
    """Check what pyiceberg ignores: that decimals have the scale of the table, and that text is not mixed with bytes.

    :raises ValueError: naming column and types.
    """
    from pyiceberg.types import BinaryType, DecimalType, StringType

    for path, kind in _paths(columns):
        has = schema.find_type(path) if path in schema.column_names else None
        is_arrow = isinstance(kind, pa.DataType)
        if isinstance(has, DecimalType):
            is_decimal = pa.types.is_decimal(kind) if is_arrow else isinstance(kind, DecimalType)
            is_wrong = is_decimal and has.scale != kind.scale
            to = f"decimal({kind.precision}, {kind.scale})" if is_wrong else ""
        elif isinstance(has, StringType):
            is_wrong, to = (pa.types.is_binary(kind) if is_arrow else isinstance(kind, BinaryType)), "binary"
        else:
            is_text = pa.types.is_string(kind) if is_arrow else isinstance(kind, StringType)
            is_wrong, to = isinstance(has, BinaryType) and is_text, "string"
        if is_wrong:
            raise ValueError(f"Cannot change column type: {path}: {has} -> {to}")


def _check_renamed(metadata: TableMetadata, columns: pa.Schema | Schema) -> None:
    """Check that no column has the previous name of another one: readers would see its values in both.

    :raises ValueError: naming both.
    """
    mapping, schema = metadata.name_mapping(), metadata.schema()
    previous = dict(_mapped(mapping or ()))
    for path, _ in _paths(columns):
        number = None if path in schema.column_names else previous.get(path)
        if number is not None and (name := schema.find_column_name(number)) is not None:
            raise ValueError(f"column {path!r} was renamed to {name!r}")


def _mapped(fields: Iterable[MappedField], within: str = "") -> Iterator[tuple[str, int | None]]:
    """Yield the names of columns, and of fields within them, that a name mapping knows, with their ids."""
    for field in fields:
        for name in field.names:
            yield f"{within}{name}", field.field_id
            yield from _mapped(field.fields, f"{within}{name}.")


def _check_spelling(schema: Schema, columns: pa.Schema | Schema) -> None:
    """Check that no column differs from another one only in case: Spark could not read the table.

    :raises ValueError: naming both.
    """
    spelled = {name.lower(): name for name in schema.column_names}
    for path, _ in _paths(columns):
        if (other := spelled.setdefault(path.lower(), path)) != path:
            raise ValueError(f"columns {other!r} and {path!r} differ only in case")


def _paths(columns: pa.Schema | Schema) -> Iterator[tuple[str, Any]]:
    """Yield the path of each column, and of each field within one, in Iceberg's notation, and its type."""
    if not isinstance(columns, pa.Schema):
        yield from ((path, columns.find_type(path)) for path in columns.column_names)
        return
    left = [(field.name, field.type) for field in columns]
    while left:
        path, kind = left.pop(0)
        yield path, kind
        if pa.types.is_struct(kind):
            left += [(f"{path}.{field.name}", field.type) for field in kind]
        elif pa.types.is_map(kind):
            left += [(f"{path}.key", kind.key_type), (f"{path}.value", kind.item_type)]
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            left.append((f"{path}.element", kind.value_type))


def nullable(columns: pa.Schema) -> pa.Schema:
    """Return the columns as nullable: a later delivery may lack them."""
    return pa.schema([field.with_nullable(True) for field in columns])


def fields_of(table: Table) -> list[PartitionField]:
    """Return the partition fields of a table."""
    schema = table.schema()
    return [
        PartitionField(
            name=field.name, column=schema.find_column_name(field.source_id) or "", transform=str(field.transform)
        )
        for field in table.spec().fields
    ]


def _line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def is_unavailable(error: BaseException) -> bool:
    """Return whether an error means that a service is unavailable or throttled, which is temporary."""
    code, status = _of_aws(error)
    if "Throttl" in code or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return True
    if _rest_status(error) == HTTPStatus.TOO_MANY_REQUESTS:  # pyiceberg 0.11 has no class for it
        return True
    return isinstance(error, _unavailable_errors()) and not isinstance(error, (FileNotFoundError, PermissionError))


def _is_away(error: BaseException) -> bool:
    return is_unavailable(error) and not is_refusal(error)


def is_unauthorized(error: BaseException) -> bool:
    """Return whether an error means that a catalog denies the job any access."""
    from pyiceberg.exceptions import AuthorizationExpiredError, ForbiddenError, OAuthError, UnauthorizedError

    kinds = AuthorizationExpiredError | ForbiddenError | OAuthError | UnauthorizedError
    return isinstance(error, kinds) or _of_aws(error)[0] in ACCESS_CODES


def is_gone(error: BaseException) -> bool:
    """Return whether a response to a commit means that there is no such table; REST catalogs have no class for it."""
    from pyiceberg.exceptions import NoSuchTableError, RESTError

    is_not_found = _rest_status(error) == HTTPStatus.NOT_FOUND
    return isinstance(error, NoSuchTableError) or (isinstance(error, RESTError) and is_not_found)


def _rest_status(error: BaseException) -> int | None:
    """Return the HTTP status of a REST catalog's error; None for any other error."""
    status: int | None = getattr(getattr(error.__cause__, "response", None), "status_code", None)
    return status


def _of_aws(error: BaseException) -> tuple[str, int]:
    """Return the code and the HTTP status of an AWS error; empty values for any other error."""
    from botocore.exceptions import ClientError

    if not isinstance(error, ClientError):
        return "", 0
    return error.response["Error"]["Code"], error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)


def _unavailable_errors() -> tuple[type[BaseException], ...]:
    from botocore.exceptions import ConnectionError as AwsConnectionError
    from botocore.exceptions import HTTPClientError
    from pyiceberg.exceptions import (
        CommitStateUnknownException,
        ServerError,
        ServiceUnavailableError,
    )
    from sqlalchemy.exc import InterfaceError, OperationalError

    return (
        OSError,  # of requests, sockets and filesystems
        CommitStateUnknownException,
        ServerError,
        ServiceUnavailableError,
        InterfaceError,
        OperationalError,
        AwsConnectionError,
        HTTPClientError,
    )
