"""Jobs that land the cases of the table of types, deliver them to each sink, and read them back."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlalchemy import make_url

from airflow_provider_coordination.sources.items import Item, ItemReader, ReadPage
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.sources.s3.listing import file_version
from airflow_provider_coordination.sources.s3.objects import open_filesystem
from airflow_provider_coordination.sources.s3.reader import ObjectReader
from airflow_provider_coordination.spark.delivery import Attempt
from airflow_provider_coordination.spark.item_file import ItemPlan
from airflow_provider_coordination.spark.item_landing import LandedItems, land_partition
from airflow_provider_coordination.spark.layout import ITEM_RECORDS, PAYLOAD
from airflow_provider_coordination.spark.payload import JsonPayload
from airflow_provider_coordination.spark.sink_settings import SinkSettings
from airflow_provider_coordination.spark.sinks import make_sinks
from airflow_provider_coordination.spark.slots import LandingOptions
from airflow_provider_coordination.spark.transformation import Transformation
from airflow_provider_coordination.spark.transformed_delivery import TransformedDelivery
from tests.support.sinks import an_attempt
from tests.support.sql_tables import SqlTarget
from tests.support.table_readers import read_delta, read_iceberg, read_iceberg_by_spark, read_mariadb, read_postgresql
from tests.support.type_table import Case, NanoTime
from tests.support.type_texts import by_mariadb, by_postgresql, by_spark, from_json, read, sent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HAS_TIMES = "spark.sql.timeType.enabled"
NUMBER = "n"
"""The column that numbers the rows."""
CATALOG = "lake"
LENGTH = 20
"""The number of rows: no case has as many values, so that each has nulls."""


@dataclass(frozen=True)
class ReadColumn:
    """A column as an independent reader returned it.

    :param type: its type, in the reader's words.
    :param values: its values, as `type_texts` has them.
    """

    type: str
    values: list[Any]


@dataclass(frozen=True)
class TypeJobs:
    """The sinks that receive the cases.

    :param folder: for files and tables.
    :param postgres: the SQLAlchemy URL of an empty database, also for the catalog of the Iceberg tables.
    :param mariadb: another one.
    """

    folder: Path
    postgres: str
    mariadb: str

    # What arrives

    def land(self, cases: Sequence[Case]) -> LandedItems:
        """Land records that have the values of cases."""
        columns: dict[str, Any] = {NUMBER: pa.array(range(LENGTH))}
        columns |= {case.column: padded(case) for case in cases if not case.sql and not case.documents}
        if documents := [case for case in cases if case.documents]:
            columns[PAYLOAD] = [_document(documents, row) for row in range(LENGTH)]
        return self._land(_Given(pa.table(columns)), {"name": "records"})

    def land_object(self, spark: SparkSession, cases: Sequence[Case]) -> LandedItems:
        """Land an object that parquet-java writes."""
        file = self.folder / "objects" / f"{uuid.uuid4().hex}.parquet"
        file.parent.mkdir(exist_ok=True)
        write_by_java(spark, file, cases)
        filesystem, path, _ = open_filesystem(file.as_uri())
        version = file_version(filesystem.get_file_info(path))
        reader = ObjectReader(S3Objects(paths=(str(file.parent),), format="parquet"))
        return self._land(reader, {"uri": file.as_uri(), "size": file.stat().st_size, "version": version})

    def _land(self, reader: ItemReader, item: dict[str, Any]) -> LandedItems:
        plan = ItemPlan(
            source_identifier="types", partition_key="p", kind="s3", fencing_token=1, items=(item,), start=""
        )
        options = LandingOptions(
            root=str(self.folder / "landing"), seconds=60, max_bytes=2**30, slot_memory_bytes=2**28
        )
        return land_partition(reader, options, plan)

    # Where it goes

    def sink(self, kind: str, table: str) -> SinkSettings:
        """Return a sink whose table, or folder, is its own."""
        location = str(self.folder / kind / table)
        match kind:
            case "iceberg":
                settings = {"table": f"types.{table}", "catalog_name": CATALOG, "properties": self._catalog}
                return SinkSettings(name=kind, kind=kind, location=f"iceberg://test/types.{table}", settings=settings)
            case "parquet" | "delta":
                return SinkSettings(name=kind, kind=kind, location=location)
        target = SqlTarget(self.postgres if kind == "postgresql" else self.mariadb, self.folder / kind, table)
        return SinkSettings(**{**vars(target.sink_settings()), "name": kind})

    @property
    def _catalog(self) -> dict[str, str]:
        return {"type": "sql", "uri": self.postgres, "warehouse": str(self.folder / "warehouse")}

    def deliver_landed(self, kind: str, table: str, row: LandedItems) -> Exception | None:
        """Deliver a landed file to a sink without Spark; return why that failed."""
        [sink] = make_sinks([self.sink(kind, table)])
        assert sink.accepts_landed_files
        return self._deliver(sink.landed_delivery(keep=True), row)

    def deliver(
        self, spark: SparkSession, kinds: Sequence[str], table: str, row: LandedItems, cases: Sequence[Case]
    ) -> Exception | None:
        """Deliver a landed file to sinks through Spark; return why that failed."""
        sinks = make_sinks([self.sink(kind, table) for kind in kinds])
        schema = ", ".join(f"{case.column} {case.documents[1]}" for case in cases if case.documents)
        transformation = Transformation(
            spark,
            sinks,
            layout=ITEM_RECORDS,
            transform=partial(_made, [case for case in cases if case.sql]),
            payload=JsonPayload(schema, ITEM_RECORDS) if schema else None,
        )
        return self._deliver(TransformedDelivery(transformation, sinks, source="types", is_final=False), row)

    def _deliver(self, delivery: Any, row: LandedItems) -> Exception | None:
        attempt = attempt_of(row)
        try:
            prepared = delivery.prepare([attempt], delivery.sinks)[attempt.batch_id]
            if isinstance(prepared, Exception):
                return prepared
            for sink in delivery.sinks:
                delivery.commit(sink, [attempt])
        except Exception as error:
            return error
        finally:
            delivery.discard([attempt])
        return None

    # What others read

    def read_files(self, spark: SparkSession, columns: Columns) -> Read:
        """Return the columns of Parquet datasets, by Spark's own reader."""
        queries = _by_spark(columns, lambda table: f"parquet.`{self.folder / 'parquet' / table}`")
        spark.conf.set(HAS_TIMES, "true")
        return _read([json.loads(json.dumps(spark.sql(query).collect())) for query in queries], columns)

    def read_delta(self, columns: Columns) -> Read:
        """Return the columns of Delta tables, by Spark with Delta's jar."""
        return _read(read_delta(*_by_spark(columns, lambda table: f"delta.`{self.folder / 'delta' / table}`")), columns)

    def read_iceberg(self, columns: Columns) -> Read:
        """Return the columns of Iceberg tables, by DuckDB, whose own types are not compared."""
        from pyiceberg.catalog import load_catalog

        catalog, found = load_catalog(CATALOG, **self._catalog), {}
        for table, cases in columns.items():
            names = ", ".join(f'"{case.column}"' for case in cases)
            metadata = catalog.load_table(f"types.{table}").metadata_location
            rows = read_iceberg(f"SELECT {names} FROM {{table}} ORDER BY {NUMBER}", metadata)
            found[table] = {
                case.column: ReadColumn(str(case.cell("iceberg")), sent(rows[case.column].combine_chunks()))
                for case in cases
            }
        return found

    def read_iceberg_by_spark(self, columns: Columns, port: int) -> Read:
        """Return the columns of Iceberg tables, by Spark with Iceberg's jar.

        :param port: where PostgreSQL answers Java.
        """
        url = make_url(self.postgres)
        found = read_iceberg_by_spark(
            *_by_spark(columns, lambda table: f"{CATALOG}.types.{table}"),
            catalog=CATALOG,
            jdbc=f"jdbc:postgresql://127.0.0.1:{port}/{url.database}",
            user=str(url.username),
            warehouse=self._catalog["warehouse"],
        )
        return _read(found, columns)

    def read_postgresql(self, columns: Columns) -> Read:
        """Return the columns of tables of PostgreSQL, by psql."""
        url = self.postgres.replace("+psycopg", "")

        def types(table: str) -> str:
            return (
                f"SELECT json_build_array(attname, format_type(atttypid, atttypmod)) FROM pg_attribute "
                f"WHERE attrelid = '{table}'::regclass AND attnum > 0"
            )

        return {
            table: _of_database(
                cases,
                dict(read_postgresql(url, types(table))),
                read_postgresql(url, _selected(cases, table, "json_build_array", by_postgresql)),
            )
            for table, cases in columns.items()
        }

    def read_mariadb(self, columns: Columns) -> Read:
        """Return the columns of tables of MariaDB, by its own client."""
        types = (
            "SELECT JSON_ARRAY(column_name, column_type) FROM information_schema.columns "
            "WHERE table_schema = DATABASE() AND table_name = '{}'"
        )
        return {
            table: _of_database(
                cases,
                dict(read_mariadb(self.mariadb, types.format(table))),
                read_mariadb(self.mariadb, _selected(cases, table, "JSON_ARRAY", by_mariadb)),
            )
            for table, cases in columns.items()
        }


Columns = Mapping[str, Sequence[Case]]
"""The cases whose columns are read, by table."""
Read = dict[str, dict[str, ReadColumn]]
"""What was read, by table and column."""


def _by_spark(columns: Columns, target: Callable[[str], str]) -> list[str]:
    """Return two queries for each table: its types, and its values."""
    queries = []
    for table, cases in columns.items():
        types = ", ".join(f"typeof({case.column})" for case in cases)
        values = ", ".join(by_spark(case.lands, case.column) for case in cases)
        queries += [
            f"SELECT {types} FROM {target(table)} LIMIT 1",
            f"SELECT {values} FROM {target(table)} ORDER BY {NUMBER}",
        ]
    return queries


def _read(answers: Sequence[list[list[Any]]], columns: Columns) -> Read:
    found: Read = {}
    for (table, cases), [types], rows in zip(columns.items(), answers[::2], answers[1::2], strict=True):
        values = zip(*rows, strict=True)
        found[table] = {
            case.column: ReadColumn(kind, [read(case.lands, value) for value in each])
            for case, kind, each in zip(cases, types, values, strict=True)
        }
    return found


def _selected(cases: Sequence[Case], table: str, array: str, text: Callable[[pa.DataType, str], str]) -> str:
    values = ", ".join(text(case.lands, case.column) for case in cases)
    return f"SELECT {array}({values}) FROM {table} ORDER BY {NUMBER}"


def _of_database(cases: Sequence[Case], types: Mapping[str, str], rows: Sequence[list[Any]]) -> dict[str, ReadColumn]:
    found = {}
    for case, each in zip(cases, zip(*rows, strict=True), strict=True):
        values = [_parsed(case.lands, value) if pa.types.is_nested(case.lands) else value for value in each]
        found[case.column] = ReadColumn(types[case.column], [read(case.lands, value) for value in values])
    return found


def _parsed(kind: pa.DataType, text: str | None) -> Any:
    return None if text is None else from_json(kind, json.loads(text, parse_int=str, parse_float=str))


def attempt_of(row: LandedItems) -> Attempt:
    """Return the delivery of a landed file."""
    return an_attempt(row.batch_id, file=row.file, file_bytes=row.file_bytes, records=row.records)


# Making values


@dataclass(frozen=True)
class _Given(ItemReader):
    """Reads records that are given."""

    records: pa.Table
    reads_at_once: int | None = None

    def origin(self, item: Item) -> str:
        return str(item["name"])

    def read(self, item: Item, position: str) -> Iterator[ReadPage]:
        yield ReadPage(self.records)


def padded(case: Case) -> pa.Array:
    """Return the values of a case with nulls up to the number of rows."""
    values, types = case.values, pa.types
    rest = LENGTH - len(values)
    if types.is_run_end_encoded(values.type):
        ends = pa.array(range(1, LENGTH + 1), pa.int32())
        return pa.RunEndEncodedArray.from_arrays(ends, pa.array([*values.to_pylist(), *[None] * rest]))
    if types.is_list_view(values.type):
        return pa.array([*values.to_pylist(), *[None] * rest], values.type)
    if types.is_dictionary(values.type):
        return pa.concat_arrays(
            [values.dictionary_decode(), pa.nulls(rest, values.type.value_type)]
        ).dictionary_encode()
    return pa.concat_arrays([values, pa.nulls(rest, values.type)])


def expected(case: Case) -> list[Any]:
    """Return the values of a case, and nulls, in the form in which they are compared."""
    return [*sent(case.values), *[None] * (LENGTH - len(case.values))]


def _document(cases: Sequence[Case], row: int) -> str:
    given = [(case.column, case.documents[0]) for case in cases if case.documents is not None]
    return "{" + ",".join(f'"{name}":{texts[row] if row < len(texts) else "null"}' for name, texts in given) + "}"


def _made(cases: Sequence[Case], records: DataFrame) -> DataFrame:
    values = [
        f"CASE {NUMBER} {' '.join(f'WHEN {n} THEN {each}' for n, each in enumerate(case.sql))} END AS {case.column}"
        for case in cases
    ]
    return records.selectExpr("*", *values).drop(PAYLOAD)


def write_by_java(spark: SparkSession, file: Path, cases: Sequence[Case]) -> None:
    """Write a Parquet file as parquet-java does, which is in Spark's JVM."""
    jvm = spark.sparkContext._jvm
    fields = "".join(_field(case.column, *case.message) for case in cases if case.message is not None)
    parquet = jvm.org.apache.parquet
    schema = parquet.schema.MessageTypeParser.parseMessageType(f"message types {{ optional int32 {NUMBER}; {fields} }}")
    groups = parquet.example.data.simple.SimpleGroupFactory(schema)
    builder = parquet.hadoop.example.ExampleParquetWriter.builder(jvm.org.apache.hadoop.fs.Path(str(file)))
    writer = builder.withConf(jvm.org.apache.hadoop.conf.Configuration()).withType(schema).build()
    for row in range(LENGTH):
        group = groups.newGroup()
        given = [(case.column, case.message[1][row]) for case in cases if case.message and row < len(case.message[1])]
        _fill(parquet, group, [(NUMBER, row), *given])
        writer.write(group)
    writer.close()


def _field(name: str, message: str, given: Sequence[Any]) -> str:
    field = message.format(name) if "{ " not in message else message.replace("{}", name)
    return f"optional {field}{'' if field.endswith('}') else ';'} "


def _fill(parquet: Any, group: Any, values: Sequence[tuple[str, Any]]) -> None:
    for name, value in values:
        match value:
            case list():
                _fill(parquet, group.addGroup(name), value)
            case bytes():
                group.add(name, parquet.io.api.Binary.fromConstantByteArray(value))
            case NanoTime():
                group.add(name, parquet.example.data.simple.NanoTime(value.day, value.nanos))
            case _:
                group.add(name, value)
