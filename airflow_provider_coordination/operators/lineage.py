"""OpenLineage: what a job read, what it wrote, how much, and as whom.

Datasets are named as OpenLineage's naming conventions say. They have no name for Kinesis, DynamoDB and OpenSearch:
these are named by their service's host, in the manner of the others. Airflow's provider `openlineage` asks for the
facets, where it is installed; nothing here imports it before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow_provider_coordination.spark.settings import DEAD_LETTER, MAIN, IngestSettings

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

HADOOP_SCHEMES = {"s3a": "s3", "s3n": "s3"}
"""What Hadoop calls the scheme of S3."""


@dataclass(frozen=True)
class Named:
    """A dataset's name.

    :param namespace: where it is: a scheme and who serves it.
    :param name: its name there.
    """

    namespace: str
    name: str


def lineage_of(settings: IngestSettings, result: Mapping[str, Any]) -> OperatorLineage[Any, Any]:
    """Return what OpenLineage is told of a job that ended well.

    :param settings: what the job was told.
    :param result: what the task returns: the job's summary, with its `owner`.
    """
    from airflow.providers.common.compat.openlineage.facet import (
        Dataset,
        OutputDataset,
        OutputStatisticsOutputDatasetFacet,
        SchemaDatasetFacet,
        SchemaDatasetFacetFields,
    )
    from airflow.providers.openlineage.extractors import OperatorLineage

    from airflow_provider_coordination.operators.lineage_facets import CoordinationRunFacet

    columns: Mapping[str, str] = result.get("columns") or {}
    schema = SchemaDatasetFacet(
        fields=[SchemaDatasetFacetFields(name=name, type=kind) for name, kind in columns.items()]
    )
    records: Mapping[str, int] = result.get("records_by_sink") or {}
    outputs = [
        OutputDataset(
            namespace=named.namespace,
            name=named.name,
            facets={"schema": schema} if columns and sink != DEAD_LETTER else {},
            outputFacets={
                "outputStatistics": OutputStatisticsOutputDatasetFacet(
                    rowCount=records.get(sink, 0),
                    fileCount=result.get("batches_delivered", 0) if sink == MAIN else None,
                )
            },
        )
        for sink, named in outputs_of(settings)
    ]
    return OperatorLineage(
        inputs=[Dataset(namespace=named.namespace, name=named.name) for named in inputs_of(settings)],
        outputs=outputs,
        run_facets={
            "coordination": CoordinationRunFacet(
                source=settings.source,
                owner=str(result.get("owner") or settings.owner),
                reads=settings.reader.kind if settings.reader else "kinesis",
                partitions=int(result.get("partitions_delivered", 0)),
                records=int(result.get("records_delivered", 0)),
                deadLetters=int(result.get("dead_letters", 0)),
            )
        },
    )


def outputs_of(settings: IngestSettings) -> Iterator[tuple[str, Named]]:
    """Yield the sinks of a job, each by its name and that of its dataset; the main one first."""
    yield from sorted(
        ((sink.name, file_dataset(sink.location)) for sink in settings.all_sinks), key=lambda sink: sink[0] != MAIN
    )


def inputs_of(settings: IngestSettings) -> list[Named]:
    """Return the datasets that a job reads, each once, in order; none where the kind of source is not known here."""
    if settings.reader is None:
        host = _host(settings.kinesis.endpoint_url) or _aws_host("kinesis", settings.kinesis.region)
        return [Named(f"kinesis://{host}", stream) for stream in settings.streams]
    naming = None if settings.reader.reader else INPUTS.get(settings.reader.kind)
    return list(dict.fromkeys(naming(settings.reader.settings))) if naming else []


def file_dataset(path: str) -> Named:
    """Return the name of a folder or file: `s3://bucket` and the key, or `file` and the path.

    :param path: a path, or a URI of S3, HDFS or another filesystem.
    """
    parts = urlsplit(path)
    if not parts.scheme or parts.scheme == "file":
        return Named("file", parts.path.rstrip("/") or "/")
    scheme = HADOOP_SCHEMES.get(parts.scheme, parts.scheme)
    # The user of a URI may come with a password.
    place = f"{scheme}://{parts.netloc.rpartition('@')[2]}"
    name = parts.path.rstrip("/") if scheme in ("hdfs", "viewfs") else parts.path.strip("/")
    return Named(place, name or "/")


def _host(url: str | None) -> str | None:
    return urlsplit(url).netloc.rpartition("@")[2] if url else None


def _aws_host(service: str, region: str | None) -> str:
    return f"{service}.{region}.amazonaws.com" if region else f"{service}.amazonaws.com"


def _objects(settings: Mapping[str, Any]) -> Iterator[Named]:
    return (file_dataset(path) for path in settings["paths"])


def _table(settings: Mapping[str, Any]) -> Iterator[Named]:
    """Name a table by its JDBC URL; a query has no name."""
    found = JDBC_URL.match(settings["url"])
    if found is None or not settings.get("table"):
        return
    dialect, host, database = found["dialect"], found["host"].rpartition("@")[2], found["database"] or ""
    scheme, port, schema = DATABASES.get(dialect, (dialect, "", ""))
    table = re.sub(r'["`\[\]]', "", settings["table"])
    if schema and "." not in table:
        table = f"{schema}.{table}"
    place = host if ":" in host or not port else f"{host}:{port}"
    is_named_whole = table.startswith(f"{database}.") and (table.count(".") == 2 or not schema)
    yield Named(f"{scheme}://{place}", table if is_named_whole or not database else f"{database}.{table}")


def _dynamodb_table(settings: Mapping[str, Any]) -> Iterator[Named]:
    yield _of_dynamodb(settings["table"], settings["aws"].get("region"), settings["aws"].get("endpoint_url"))


def _dynamodb_export(settings: Mapping[str, Any]) -> Iterator[Named]:
    if location := settings.get("location"):
        yield file_dataset(location)
    elif found := TABLE_ARN.match(settings.get("table_arn") or settings.get("export_arn") or ""):
        yield _of_dynamodb(found["table"], found["region"], settings["aws"].get("endpoint_url"))


def _of_dynamodb(table: str, region: str | None, endpoint_url: str | None) -> Named:
    return Named(f"dynamodb://{_host(endpoint_url) or _aws_host('dynamodb', region)}", table)


def _indices(settings: Mapping[str, Any]) -> Iterator[Named]:
    host = _host(next(iter(settings["hosts"]), None)) or "opensearch"
    return (Named(f"opensearch://{host}", pattern) for pattern in settings["indices"])


JDBC_URL = re.compile(r"jdbc:(?P<dialect>\w+):(?:\w+:)*@?//(?P<host>[^/;?,]+)(?:/(?P<database>[^;?/]*))?")
TABLE_ARN = re.compile(r"arn:[\w-]+:dynamodb:(?P<region>[\w-]*):\d*:table/(?P<table>[^/]+)")
DATABASES = {
    "postgresql": ("postgres", "5432", "public"),
    "mysql": ("mysql", "3306", ""),
    "mariadb": ("mysql", "3306", ""),
}
"""OpenLineage's scheme, the usual port and the usual schema of a database, by what JDBC calls it."""

INPUTS: Mapping[str, Callable[[Mapping[str, Any]], Iterator[Named]]] = {
    "s3": _objects,
    "jdbc": _table,
    "dynamodb": _dynamodb_table,
    "dynamodb_export": _dynamodb_export,
    "opensearch": _indices,
}
"""What names the datasets of each other kind of source, by its reader's settings."""
