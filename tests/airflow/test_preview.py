"""A preview reads a few records with the columns of a spec, and nothing else happens."""

from __future__ import annotations

import gzip
import json
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError
from airflow_provider_coordination.hooks.supervision import preview_source
from airflow_provider_coordination.sources.kinesis.stream_names import StreamService
from airflow_provider_coordination.sources.peek import PeekLimits
from airflow_provider_coordination.sources.s3 import peek as peek_of_objects
from airflow_provider_coordination.supervisor.preview import MAX_CHARACTERS, Preview, PreviewColumn, shown
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from tests.support.aggregation import aggregate
from tests.support.kinesis_server.clock import VirtualClock
from tests.support.kinesis_server.engine import Engine
from tests.support.kinesis_server.in_process import InProcessClient

STREAM = {"kinesis": {"streams": "clicks", "aws_conn_id": None, "region_name": "eu-west-1"}}
READS_ONLY = {"DescribeStreamSummary", "ListShards", "GetShardIterator", "GetRecords"}


def spec_of(reads: Any, **options: Any) -> IngestionSpec:
    return IngestionSpec.read({"version": 1, "reads": reads, "writes": {"parquet": {"path": "/data/lake"}}, **options})


class Stream:
    """A stream `clicks` of two shards."""

    def __init__(self) -> None:
        self.client = InProcessClient(Engine(VirtualClock(datetime.now(UTC))))
        self.client.create_stream(StreamName="clicks", ShardCount=2)
        self.client.engine.clock.sleep(60)

    def put(self, *payloads: bytes) -> None:
        for payload in payloads:
            self.client.put_record(StreamName="clicks", PartitionKey="k", Data=payload)

    def preview(self, limits: PeekLimits | None = None, **options: Any) -> Preview:
        service = StreamService(self.client, ("clicks",))
        return preview_source(spec_of(STREAM, **options), limits, service=lambda kind, settings: service)


@pytest.fixture
def stream() -> Stream:
    return Stream()


def test_records_of_a_stream_have_the_columns_of_the_spec(stream: Stream) -> None:
    stream.put(b'{"id": "1", "amount": 1.5}')
    found = stream.preview(schema="id STRING NOT NULL, amount DECIMAL(10,2)")
    [row] = found.rows
    assert (found.source, found.kind, found.notes, found.nothing) == ("clicks", "kinesis", [], "")
    assert {name: row.values[name] for name in ("stream", "partition_key", "id", "amount")} == {
        "stream": "clicks",
        "partition_key": "k",
        "id": "1",
        "amount": "1.50",
    }
    assert found.columns[0] == PreviewColumn(name="stream", type="string", origin="source")
    assert found.columns[-1] == PreviewColumn(name="amount", type="DECIMAL(10,2)", origin="payload")


def test_record_that_does_not_parse_is_shown_with_the_reason(stream: Stream) -> None:
    stream.put(b"no JSON", b'{"id": "2"}', b"\xff\x00")
    wrong, good, binary = stream.preview(schema="id STRING").rows
    assert (wrong.error, wrong.values["data"]) == ("the payload is not one JSON object", "no JSON")
    assert (good.error, good.values["id"]) == ("", "2")
    assert binary.values["data"] == "base64:/wA="
    assert [row.record for row in (wrong, good, binary)] == [1, 2, 3]


def test_records_of_an_aggregate_are_shown_one_by_one(stream: Stream) -> None:
    stream.put(aggregate([("a", b"1"), ("b", b"2")]))
    rows = stream.preview().rows
    assert [(row.values["partition_key"], row.values["sub_sequence_number"]) for row in rows] == [("a", 0), ("b", 1)]


def test_old_records_are_shown_if_there_are_no_recent_ones(stream: Stream) -> None:
    stream.put(b"old")
    stream.client.engine.clock.sleep(3 * 3600)
    assert [row.values["data"] for row in stream.preview().rows] == ["old"]


def test_preview_ends_at_its_limits(stream: Stream) -> None:
    stream.put(*(b"%d" % number * 100 for number in range(10, 30)))
    assert len(stream.preview().rows) == 10
    assert len(stream.preview(PeekLimits(records=3)).rows) == 3
    assert len(stream.preview(PeekLimits(max_bytes=1)).rows) == 1


def test_empty_stream_says_where_it_looked(stream: Stream) -> None:
    found = stream.preview()
    assert found.rows == []
    assert found.nothing.startswith("stream 'clicks' has no record of the last hour, nor one on the oldest pages")


def test_stream_is_only_read(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    stream.put(b"1")
    called, call = set(), stream.client._call

    def noted(operation: str, request: Any) -> Any:
        called.add(operation)
        return call(operation, request)

    monkeypatch.setattr(stream.client, "_call", noted)
    stream.preview()
    assert called and called <= READS_ONLY


def test_missing_permission_is_named(stream: Stream) -> None:
    stream.put(b"1")
    stream.client.engine.faults.deny("GetRecords")
    with pytest.raises(ConfigurationError, match=r"access denied: .*; check the credentials, their policy"):
        stream.preview()


def test_missing_stream_is_named(stream: Stream) -> None:
    stream.client.delete_stream(StreamName="clicks")
    stream.client.engine.clock.sleep(60)
    with pytest.raises(ConfigurationError, match="stream 'clicks' does not exist in region"):
        stream.preview()


def test_silent_source_is_given_up(stream: Stream) -> None:
    silent = threading.Event()
    try:
        with pytest.raises(SourceError, match=r"the source did not respond within 0\.05 s"):
            preview_source(spec_of(STREAM), service=lambda *_: silent.wait(60), response_seconds=0.05)
    finally:
        silent.set()


def test_work_of_spark_is_noted(stream: Stream) -> None:
    stream.put(b'{"id": "1", "at": "2026-01-01"}')
    found = stream.preview(
        schema="id STRING, at TIMESTAMP",
        computed={"page": "lower(id)"},
        transform="my_project.transforms:clean",
        writes={"parquet": {"path": "/data/lake", "where": "id = 1"}},
        supervise={"event_time": "at", "late_message_rejection_period": "P1D"},
    )
    assert found.columns[-1] == PreviewColumn(name="page", type="", origin="computed")
    assert found.notes == [
        "'computed' needs Spark: the values of 'page' are not shown",
        "'transform' needs Spark: these are the records that 'my_project.transforms:clean' receives",
        "'where' of sinks needs Spark: it is not shown which sink gets a record",
        "late and early records are not left out",
    ]


def test_values_with_the_name_of_a_secret_are_hidden(stream: Stream) -> None:
    stream.put(b'{"user": "ann", "password": "hunter2x", "more": {"api_key": "abc"}}')
    [row] = stream.preview(schema="user STRING, password STRING, more STRUCT<api_key: STRING>").rows
    assert (row.values["user"], row.values["password"], row.values["more"]) == ("ann", "***", {"api_key": "***"})
    assert "hunter2x" not in json.dumps(row.values)


# Objects and files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def of_files(folder: Path, limits: PeekLimits | None = None, **given: Any) -> Preview:
    options = {name: given.pop(name) for name in ("schema",) if name in given}
    return preview_source(spec_of({"s3": {"paths": str(folder), **given}}, **options), limits)


def test_lines_of_files_get_the_columns_of_the_schema(folder: Path) -> None:
    (folder / "a.json").write_text('{"id": "1"}\n{"id": "2"}\n')
    (folder / "b.json.gz").write_bytes(gzip.compress(b'{"id": "3"}\n'))
    found = of_files(folder, schema="id STRING")
    assert [(Path(row.values["_origin"]).name, row.values["id"]) for row in found.rows] == [
        ("a.json", "1"),
        ("a.json", "2"),
        ("b.json.gz", "3"),
    ]


def test_columns_of_files_are_shown_with_their_types(folder: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2], "tags": [["a"], None]}), folder / "a.parquet")
    found = of_files(folder, format="parquet")
    assert [(column.name, column.type) for column in found.columns] == [
        ("_origin", "string"),
        ("id", "int64"),
        ("tags", "list<element: string>"),
    ]
    assert [(row.values["id"], row.values["tags"]) for row in found.rows] == [(1, ["a"]), (2, None)]


def test_schema_is_refused_where_records_have_no_payload(folder: Path) -> None:
    (folder / "a.csv").write_text("id\n1\n")
    with pytest.raises(ConfigurationError, match="parse the column 'data', but the records have _origin, id"):
        of_files(folder, format="csv", schema="id STRING")


def test_unreadable_file_is_noted_and_others_are_read(folder: Path) -> None:
    (folder / "a.parquet").write_text("no Parquet")
    pq.write_table(pa.table({"id": [1]}), folder / "b.parquet")
    found = of_files(folder, format="parquet")
    assert [row.values["id"] for row in found.rows] == [1]
    assert len(found.notes) == 1 and found.notes[0].startswith(f"{folder}/a.parquet: ")


def test_large_columnar_file_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peek_of_objects, "WHOLE_BYTES", 10)
    pq.write_table(pa.table({"id": [1]}), folder / "a.parquet")
    found = of_files(folder, format="parquet")
    assert "and a preview reads 10 of parquet at most" in found.notes[0]
    assert found.nothing.startswith("no record was read of the first 1 selected objects at")


def test_folder_without_files_says_so(folder: Path) -> None:
    assert of_files(folder).nothing == f"there is no object at {folder}; check 'paths'"


def test_selection_of_nothing_says_so(folder: Path) -> None:
    (folder / "a.csv").write_text("id\n1\n")
    found = of_files(folder, format="csv", include="*.json")
    assert found.nothing.startswith(f"none of the first 1 objects at {folder} is selected; check 'include'")


def test_delivered_files_are_kept(folder: Path) -> None:
    (folder / "a.json").write_text('{"id": "1"}\n')
    assert of_files(folder, delete_on_success=True).rows
    assert (folder / "a.json").exists()


def test_kind_that_only_spark_reads_is_refused(connect: Any) -> None:
    connect("jdbc_default", "postgres", host="db", schema="shop")
    with pytest.raises(ConfigurationError, match="a source of kind 'jdbc' cannot be previewed: only its Spark jobs"):
        preview_source(spec_of({"jdbc": {"table": "orders", "column": "id"}}))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("x" * MAX_CHARACTERS, "x" * MAX_CHARACTERS),
        ("x" * 2000, "x" * MAX_CHARACTERS + "… (2000 characters)"),
        (float("nan"), "nan"),
        (1.5, 1.5),
        (True, True),
        ({"a": [datetime(2026, 1, 1, tzinfo=UTC)]}, {"a": ["2026-01-01T00:00:00+00:00"]}),
    ],
)
def test_value_is_shown_as_json(value: Any, expected: Any) -> None:
    assert shown(value) == expected
    json.dumps(shown(value), allow_nan=False)
