"""The source of a spec is checked before a job runs: the stream exists, and its records match the schema."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError
from airflow_provider_coordination.hooks.supervision import check_against_source
from airflow_provider_coordination.sources.kinesis.stream_names import StreamService
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from tests.supervisor.specs import SPEC, spec_with
from tests.support.aggregation import aggregate
from tests.support.kinesis_server.clock import VirtualClock
from tests.support.kinesis_server.engine import Engine
from tests.support.kinesis_server.in_process import InProcessClient
from tests.support.waiting import PATIENCE_SECONDS

GOOD = {"id": "1", "at": "2026-01-01T00:00:00Z", "amount": 1.5}


class Stream:
    """A stream `clicks` of two shards, and specs that read it."""

    def __init__(self) -> None:
        self.client = InProcessClient(Engine(VirtualClock(datetime.now(UTC))))
        self.client.create_stream(StreamName="clicks", ShardCount=2)
        self.client.engine.clock.sleep(60)
        self.service = StreamService(self.client, ("clicks",))

    def put(self, *payloads: bytes) -> None:
        for number, payload in enumerate(payloads):
            self.client.put_record(StreamName="clicks", PartitionKey=str(number), Data=payload)

    def checked(self, path: str, value: Any, **more: Any) -> tuple[str, ...]:
        spec = IngestionSpec.read(spec_with(path, value) | more)
        return check_against_source(spec, service=lambda kind, settings: self.service)


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_CLUSTER", "spark://spark:7077")
    monkeypatch.setenv("AIRFLOW_CONN_COORDINATION_DEFAULT", "coordination://")
    return Stream()


def test_missing_stream_is_named_with_its_region(stream: Stream) -> None:
    said = "field 'reads.kinesis': stream 'orders' does not exist in region .*: check its name, the region"
    with pytest.raises(ConfigurationError, match=said):
        stream.checked("reads.kinesis.streams", "orders")


def test_stream_without_records_is_accepted(stream: Stream) -> None:
    assert stream.checked("source", "clicks") == ()


def test_records_of_an_aggregate_are_checked_one_by_one(stream: Stream) -> None:
    stream.put(aggregate([("a", b"no JSON"), ("b", json.dumps(GOOD).encode())]))
    assert stream.checked("source", "clicks") == ()


def test_few_bad_records_among_good_ones_are_accepted(stream: Stream) -> None:
    stream.put(b"no JSON", json.dumps(GOOD).encode())
    assert stream.checked("source", "clicks") == ()


@pytest.mark.parametrize(
    ("value", "formats", "year"),
    [
        (1769817600000, None, 58053),
        (1769817600, {"at": "auto"}, None),
        (-1, None, 1969),
        ("1e18", {"at": "micros"}, 33658),
    ],
)
def test_implausible_time_is_a_warning_with_the_value(
    stream: Stream, value: Any, formats: dict[str, str] | None, year: int | None
) -> None:
    stream.put(json.dumps({**GOOD, "at": value}).encode())
    warnings = stream.checked("time_formats", formats)
    assert [
        f"column 'at' has the time {json.dumps(value)}, which is in about the year {year}" in w for w in warnings
    ] == [True] * (year is not None)


def test_undefined_connections_of_jobs_are_warnings(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_CLUSTER")
    assert stream.checked("source", "clicks") == (
        "field 'tuning.spark.conn_id': connection 'spark_cluster' is not defined; define it where the DAG of "
        "supervised_ingestion runs, or correct the name",
    )


@pytest.mark.parametrize(
    ("payload", "schema", "said"),
    [
        (
            {**GOOD, "amount": "12.50 EUR"},
            "amount DOUBLE",
            "column 'amount' has type DOUBLE, but the record has \"12.50 EUR\"",
        ),
        ({**GOOD, "id": "1a"}, "id BIGINT", "column 'id' has type BIGINT, but the record has \"1a\""),
        (GOOD, "amount INT", "column 'amount' has type INT, but the record has 1.5"),
        ({**GOOD, "at": "yesterday"}, "at TIMESTAMP", 'the record has "yesterday"'),
        (GOOD, "id ARRAY<STRING>", "column 'id' has type ARRAY"),
        (GOOD, "id STRING, user STRING NOT NULL", "column 'user' is NOT NULL, but the record has no value"),
        (GOOD, "ID STRING", "the payload has none of the columns; its fields are 'id', 'at', 'amount'"),
        ([1], "id STRING", "the payload is not a JSON object"),
    ],
    ids=str,
)
def test_schema_that_fits_no_record_names_the_column(stream: Stream, payload: Any, schema: str, said: str) -> None:
    stream.put(json.dumps(payload).encode())
    with pytest.raises(ConfigurationError) as raised:
        stream.checked("schema", schema)
    assert "field 'schema' matches none of 1 records: " in str(raised.value) and said in str(raised.value)


def test_two_sinks_in_one_place_are_refused(stream: Stream) -> None:
    sinks = [{"parquet": {"path": "/lake/a"}}, {"parquet": {"path": "/lake/a/", "name": "copy"}}]
    with pytest.raises(ConfigurationError, match=r"have the same location, '/lake/a/?'"):
        stream.checked("writes", sinks)


def test_target_below_what_a_table_bears_is_refused(stream: Stream) -> None:
    sinks = [{"delta": {"path": "/lake/clicks"}}]
    with pytest.raises(ConfigurationError, match=r"field 'freshness' must be above PT2.5S, .* sink 'main'"):
        stream.checked("rounds", {"freshness": 2}, writes=sinks)


@pytest.mark.parametrize("value", [1767225600, "2026-01-01", "2026-01-01 00:00:00", "2026-1-1T00:00:00+02:00", None])
def test_timestamps_are_accepted_in_every_spark_format(stream: Stream, value: Any) -> None:
    stream.put(json.dumps({"at": value, "id": "1"}).encode())
    assert stream.checked("schema", "at TIMESTAMP, id STRING") == ()


def test_slow_source_counts_as_unreachable(stream: Stream) -> None:
    ends = threading.Event()

    def service(kind: object, settings: object) -> Any:
        ends.wait(PATIENCE_SECONDS)
        return stream.service

    try:
        with pytest.raises(SourceError, match=r"did not respond within 0\.01 s"):
            check_against_source(IngestionSpec.read(SPEC), service=service, response_seconds=0.01)
    finally:
        ends.set()
