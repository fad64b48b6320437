"""The data files of a table: Parquet files with their Iceberg partitions and statistics.

Files are added as they were written; the table's name mapping finds columns by name. A file is rewritten if it holds
rows of several partitions, or rows that are not wanted.
"""

from __future__ import annotations

import base64
import logging
import secrets
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.delivery import DeliveryError
from airflow_provider_coordination.spark.layout import BATCH_ID
from airflow_provider_coordination.spark.merging import positions
from airflow_provider_coordination.spark.parquet_files import (
    TableWriter,
    batches_of,
    count_by_batch,
    footer_of,
    pieces_of,
    read_table,
    write_table,
)
from airflow_provider_coordination.spark.sinks.iceberg.catalog import WHOLE_BATCH_IDS
from airflow_provider_coordination.spark.storage import delete_file, file_size, join
from airflow_provider_coordination.spark.table_sinks import PreparedFile

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionField
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.types import PrimitiveType

log = logging.getLogger(__name__)

POSITION = "_coordination_position"
"""The column with the position of a row in its file."""
METRICS = "write.metadata.metrics.column.{}"
"""The property of a table that chooses a column's statistics."""
MANY_PARTITIONS = 1_000
"""From this number of partitions in a delivery on, a warning is logged: each partition becomes a file."""


def split_by_partition(table: Table, files: Sequence[str], folder: str, access: Access) -> list[PreparedFile]:
    """Return written files in a form that the table accepts: each file holds one partition.

    :param folder: the folder for files that must be rewritten.
    """
    if not table.spec().fields:
        return [written for file in files if (written := _unchanged(file, access)).rows]
    prepared: list[PreparedFile] = []
    for file in files:
        if (whole := _of_one_partition(table, file, access)) is not None:
            prepared.append(whole)
            continue
        prepared += split(table, read_table(file, access=access), folder, access)
        delete_file(file, access)
    partitions = {tuple(each.partition) for each in prepared}
    if len(partitions) > MANY_PARTITIONS:
        log.warning(
            "Iceberg table %s: a delivery has rows of %d partitions, and each one becomes a file; choose a "
            "coarser 'partition_by'", ".".join(table.name()), len(partitions),
        )  # fmt: skip
    return prepared


def _of_one_partition(table: Table, file: str, access: Access) -> PreparedFile | None:
    """Return a file unchanged if all its rows belong to one partition of the table."""
    columns = [table.schema().find_column_name(field.source_id) or "" for field in table.spec().fields]
    named = set(footer_of(file, access).schema.to_arrow_schema().names)
    if not named.issuperset(columns):  # for example a struct's field; or it is missing, which the split reports
        return None
    partitions = list(_partitions(table, read_table(file, sorted(set(columns)), access)))
    return replace(_unchanged(file, access), partition=partitions[0][0]) if len(partitions) == 1 else None


def split(table: Table, rows: pa.Table, folder: str, access: Access) -> list[PreparedFile]:
    """Write rows to a folder, one file for each partition."""
    return [_write(part, folder, values, access) for values, part in _partitions(table, rows) if part.num_rows]


def _write(rows: pa.Table, folder: str, partition: Sequence[str | None], access: Access) -> PreparedFile:
    file = join(folder, f"{secrets.token_hex(8)}.parquet")
    size = write_table(rows, file, access)
    return PreparedFile(name=file, bytes=size, rows=rows.num_rows, batches=count_by_batch(rows), partition=partition)


def _unchanged(file: str, access: Access) -> PreparedFile:
    footer, size = footer_of(file, access), file_size(file, access)
    if size is None:
        raise DeliveryError(f"file {file} is gone")
    return PreparedFile(name=file, bytes=size, rows=footer.num_rows, batches=batches_of(file, footer, access))


# Partitions


def _partitions(table: Table, rows: pa.Table) -> Iterator[tuple[Sequence[str | None], pa.Table]]:
    """Yield the rows of each partition, with the partition's values."""
    fields = table.spec().fields
    if not fields:
        yield (), rows
        return
    names = [f"_partition_{n}" for n in range(len(fields))]
    keyed = pa.table({"_at": pa.array(range(rows.num_rows), pa.int64())})
    values: list[list[str | None]] = []
    for name, field in zip(names, fields, strict=True):
        numbers, known = _transformed(table, field, rows)
        values.append(known)
        keyed = keyed.append_column(name, numbers)
    grouped = keyed.group_by(names).aggregate([("_at", "list")])
    for rows_at, *numbers in zip(*(grouped.column(name) for name in ("_at_list", *names)), strict=True):
        partition = [known[number.as_py()] for number, known in zip(numbers, values, strict=True)]
        yield partition, rows.take(rows_at.values)


def _transformed(table: Table, field: PartitionField, rows: pa.Table) -> tuple[pa.Array, list[str | None]]:
    """Return the number of each row's value of a partition field, and the values by number, encoded by `_encoded`.

    The transform runs once for each distinct value. Encoded values are compared: to Python, 0.0 and -0.0 are equal.
    """
    from pyiceberg.transforms import VoidTransform

    source = table.schema().find_field(field.source_id)
    name = table.schema().find_column_name(field.source_id)
    if isinstance(field.transform, VoidTransform):
        return pa.array([0] * rows.num_rows, pa.int32()), [None]
    if name not in rows.column_names:
        raise DeliveryError(
            f"Iceberg table {'.'.join(table.name())!r} is partitioned by {field.name!r}, made from the column "
            f"{name!r}, which the delivery does not have; it has {', '.join(rows.column_names)}"
        )
    column = _internal(rows.column(name), source.field_type).combine_chunks()
    encoded = column.dictionary_encode(null_encoding="encode")
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    transform = field.transform.transform(source.field_type)
    known: dict[str | None, int] = {}
    kind, numbers = _type_of(table, field), []
    for value in encoded.dictionary.to_pylist():
        try:
            partition_value = None if value is None else transform(value)
            field.transform.to_human_string(source.field_type, partition_value)  # as the snapshot's summary needs it
        except (OverflowError, ValueError) as error:
            raise DeliveryError(
                f"Iceberg table {'.'.join(table.name())!r} is partitioned by {field.name!r}, and the value {value!r} "
                f"of column {name!r} has no {field.transform}: {error}; convert it in the transform; the batches wait "
                "until then"
            ) from None
        numbers.append(known.setdefault(_encoded(kind, partition_value), len(known)))
    return pa.array(numbers, pa.int32()).take(encoded.indices), list(known)


def _internal(column: pa.ChunkedArray, kind: Any) -> pa.ChunkedArray:
    """Return a column in the form that Iceberg's transforms need: times as whole numbers."""
    from pyiceberg.types import DateType, TimestampType, TimestamptzType, TimeType

    if isinstance(kind, TimestampType | TimestamptzType):
        return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    if isinstance(kind, TimeType):
        return column.cast(pa.time64("us")).cast(pa.int64())
    return column.cast(pa.int32()) if isinstance(kind, DateType) else column


def _type_of(table: Table, field: PartitionField) -> PrimitiveType:
    source = table.schema().find_field(field.source_id)
    return field.transform.result_type(source.field_type)  # type: ignore[return-value]


def _encoded(kind: PrimitiveType, value: Any) -> str | None:
    """Return a value as text for JSON."""
    from pyiceberg.conversions import to_bytes

    return None if value is None else base64.b64encode(to_bytes(kind, value)).decode()


def _decoded(kind: PrimitiveType, text: str | None) -> Any:
    from pyiceberg.conversions import from_bytes

    return None if text is None else from_bytes(kind, base64.b64decode(text))


def data_file(table: Table, metadata: TableMetadata, written: PreparedFile, footer: pq.FileMetaData) -> DataFile:
    """Return a file in the form that a table accepts.

    :param metadata: the table's metadata, with the columns that are added together with the file.
    :param footer: the footer of the file.
    :raises DeliveryError: if the file has nulls in a required column.
    """
    from pyiceberg.io.pyarrow import (
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
    )
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    schema = metadata.schema()
    ids = parquet_path_to_id_mapping(schema)
    without_bounds = (METRICS.format(schema.find_column_name(ids[path])) for path in unbounded(footer))
    properties = {**metadata.properties, **WHOLE_BATCH_IDS, **dict.fromkeys(without_bounds, "counts")}
    statistics = data_file_statistics_from_parquet_metadata(footer, compute_statistics_plan(schema, properties), ids)
    present = set(footer.schema.to_arrow_schema().names)
    for field in schema.fields:
        if field.required and (field.name not in present or statistics.null_value_counts.get(field.field_id)):
            raise DeliveryError(
                f"Iceberg table {'.'.join(table.name())!r} requires column {field.name!r}, but the delivery has rows "
                "without it; the batches wait: change the table or the transform"
            )
    kinds = [_type_of(table, field) for field in table.spec().fields]
    values = [_decoded(kind, text) for kind, text in zip(kinds, written.partition, strict=True)]
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=written.name,
        file_format=FileFormat.PARQUET,
        partition=Record(*values),
        file_size_in_bytes=written.bytes,
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
    file.spec_id = table.spec().spec_id
    return file


def unbounded(footer: pq.FileMetaData) -> set[str]:
    """Return the columns of a file with dates or instants that Python does not have: outside the years 1 to 9999."""
    chunks = [
        footer.row_group(group).column(number)
        for group in range(footer.num_row_groups)
        for number in range(footer.num_columns)
    ]
    return {chunk.path_in_schema for chunk in chunks if not _has_known_bounds(chunk.statistics)}


def _has_known_bounds(statistics: pq.Statistics | None) -> bool:
    try:
        return statistics is None or not statistics.has_min_max or (statistics.min, statistics.max) is not None
    except (OverflowError, ValueError):
        return False


@dataclass(frozen=True)
class FileRows:
    """Some rows of a table's file.

    :param task: the file.
    :param positions: the positions of the rows in the file.
    :param deleted: the positions of the rows that were deleted before.
    :param left: the number of other rows.
    """

    task: FileScanTask
    positions: pa.Array
    deleted: pa.Array
    left: int


def tasks_of(table: Table, batch_ids: Collection[str]) -> list[FileScanTask]:
    """Return the files of a table that may hold rows of some batches, by their statistics."""
    from pyiceberg.expressions import In, Reference
    from pyiceberg.expressions.literals import literal

    if not batch_ids or table.current_snapshot() is None or BATCH_ID not in table.schema().column_names:
        return []
    return list(table.scan(In(term=Reference(BATCH_ID), values={literal(each) for each in batch_ids})).plan_files())


def batches_in(table: Table, batch_ids: Collection[str]) -> set[str]:
    """Return which of some batches have rows in a table; batches without rows cannot be found this way."""
    tasks = tasks_of(table, batch_ids)
    deleted = deleted_rows(table, tasks)
    present: set[str] = set()
    for task in tasks:
        for rows in rows_of(table, task, deleted, BATCH_ID):
            present |= set(pc.unique(rows.column(BATCH_ID)).to_pylist())
    return present & set(batch_ids)


def rows_of_batches(table: Table, batch_ids: Collection[str]) -> list[FileRows]:
    """Return the rows of some batches in a table."""
    tasks = tasks_of(table, batch_ids)
    deleted, found = deleted_rows(table, tasks), []
    for task in tasks:
        count, of_batches = 0, []
        for rows in rows_of(table, task, deleted, BATCH_ID):
            count += rows.num_rows
            of_batches += rows.filter(is_of_batches(rows, batch_ids)).column(POSITION).chunks
        own = pa.chunked_array(of_batches, pa.int64()).combine_chunks()
        found.append(FileRows(task, own, deleted[task.file.file_path], count - len(own)))
    return [each for each in found if len(each.positions)]


def is_of_batches(rows: pa.Table, batch_ids: Collection[str]) -> pa.ChunkedArray:
    """Return for each row whether it belongs to some batches."""
    if BATCH_ID not in rows.column_names:
        return pa.chunked_array([pa.repeat(pa.scalar(False), rows.num_rows)])
    ids = rows.column(BATCH_ID)
    return pc.is_in(ids, pa.array(list(batch_ids), ids.type))


def rewrite_without(
    table: Table, removed: Sequence[FileRows], folder: str, access: Access
) -> tuple[list[DataFile], list[PreparedFile]]:
    """Return the files that hold some rows, and new files that hold the rest of their rows.

    Only one file at a time is in memory.

    :param removed: the rows, at most once for each file.
    """
    rest: list[PreparedFile] = []
    for each in removed:
        gone = pa.concat_arrays([each.positions, each.deleted])
        rest += split(table, whole_rows(table, [each.task], {each.task.file.file_path: gone}), folder, access)
    return [each.task.file for each in removed], rest


def positions_in_file(positions: pa.Array, first: int, rows: int) -> pa.Array:
    """Return the positions that belong to one file, counted from its first row."""
    own = pc.and_(pc.greater_equal(positions, first), pc.less(positions, first + rows))
    return pc.subtract(positions.filter(own), first)


def copy_rows(written: PreparedFile, positions: pa.Array, folder: str, access: Access) -> PreparedFile:
    """Copy some rows of a prepared file to a new one; some rows at a time are in memory.

    :param positions: the positions of the rows in the file.
    """
    batches: Counter[str] = Counter()
    first = 0
    with TableWriter(join(folder, f"{secrets.token_hex(8)}.parquet"), access) as target:
        for rows in pieces_of(written.name, access):
            kept = rows.take(positions_in_file(positions, first, rows.num_rows))
            first += rows.num_rows
            batches.update(count_by_batch(kept))
            if kept.num_rows:
                target.write(kept)
    return replace(written, name=target.uri, bytes=target.size, rows=len(positions), batches=dict(batches))


def copy_batches(written: PreparedFile, folder: str, access: Access) -> PreparedFile:
    """Copy the rows of a file's batches to a new file."""
    ids = read_table(written.name, [BATCH_ID], access).column(BATCH_ID)
    wanted = pc.indices_nonzero(pc.is_in(ids, pa.array(list(written.batches), ids.type)))
    return copy_rows(written, wanted, folder, access)


def deleted_rows(table: Table, tasks: Sequence[FileScanTask]) -> Mapping[str, pa.Array]:
    """Return the positions of deleted rows in files of a table, by the path of the file."""
    from pyiceberg.io.pyarrow import _read_all_delete_files

    deleted: dict[str, list[pa.ChunkedArray]] = _read_all_delete_files(table.io, tasks)
    chunks = {
        task.file.file_path: [chunk for array in deleted.get(task.file.file_path, ()) for chunk in array.chunks]
        for task in tasks
    }
    return {path: pa.chunked_array(of, pa.int64()).combine_chunks() for path, of in chunks.items()}


def rows_of(table: Table, task: FileScanTask, deleted: Mapping[str, pa.Array], *columns: str) -> Iterator[pa.Table]:
    """Yield the rows of a table's file, without deleted rows, some at a time, with their positions in the file.

    :param deleted: see `deleted_rows`.
    :param columns: the columns; by default all.
    """
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    schema = table.schema().select(*columns) if columns else table.schema()
    scan = ArrowScan(table.metadata, table.io, schema, AlwaysTrue())
    gone, first = deleted[task.file.file_path], 0
    for batch in scan._record_batches_from_scan_tasks_and_deletes([task], {}):  # every row, so that they can be counted
        rows = pa.Table.from_batches([batch])
        at = positions(rows, first)
        first += rows.num_rows
        rows = rows.append_column(POSITION, at)
        yield rows.filter(pc.invert(pc.is_in(at, gone))) if len(gone) else rows


def whole_rows(table: Table, tasks: Sequence[FileScanTask], deleted: Mapping[str, pa.Array]) -> pa.Table:
    """Return the rows of files of a table with all columns, without deleted rows.

    :param deleted: see `deleted_rows`.
    """
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    none = schema_to_pyarrow(table.schema(), include_field_ids=False).empty_table()
    parts = [rows.drop_columns([POSITION]) for task in tasks for rows in rows_of(table, task, deleted)]
    return pa.concat_tables([none, *parts], promote_options="permissive")
