"""A function that receives batches: at least once, and without leftovers of a former owner or a failed preparation."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.spark.delivery import DeliveryError
from airflow_provider_coordination.spark.sink_settings import SinkSettings
from airflow_provider_coordination.spark.sinks import make_sinks
from airflow_provider_coordination.spark.sinks.foreach_batch import ForeachBatchSink
from airflow_provider_coordination.spark.storage import files_below
from airflow_provider_coordination.spark.writes import ForeachBatch
from tests.support.s3_server import S3Server
from tests.support.sinks import BatchRows, an_attempt, under_next_lease

pytestmark = pytest.mark.integration
BATCHES = [an_attempt("a-1"), an_attempt("b-1")]
VALUES = {"a-1": [1, 2], "b-1": [3]}
MODULE = """
calls = []

def publish(rows, batch_ids):
    calls.append((batch_ids, sorted((row._batch_id, row.n) for row in rows.collect())))

def failing(rows, batch_ids):
    raise ValueError("the broker is away")
"""
MakeSink = Callable[..., ForeachBatchSink]
Calls = Callable[[], list[tuple[list[str], list[tuple[str, int]]]]]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a user's module."""
    name = f"publishing_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return name


@pytest.fixture
def make_sink(spark: SparkSession, module: str, tmp_path: Path) -> MakeSink:
    """Create the sink of a new job."""

    def make(function: str = "publish") -> ForeachBatchSink:
        settings = ForeachBatch(function=f"{module}:{function}", staging_path=str(tmp_path / "staging"))
        return ForeachBatchSink("main", settings)

    return make


@pytest.fixture
def calls(module: str) -> Calls:
    """Return the arguments of the function's calls."""
    import importlib

    return lambda: importlib.import_module(module).calls


ROWS = [("a-1", 1), ("a-1", 2), ("b-1", 3)]


def test_function_gets_all_batches_in_one_call(make_sink: MakeSink, calls: Calls) -> None:
    sink = make_sink()
    sink.check()
    sink.prepare(BATCHES, BatchRows(VALUES))
    assert calls() == []
    sink.commit(BATCHES)
    sink.discard(BATCHES)
    assert calls() == [(["a-1", "b-1"], ROWS)]


def test_uncommitted_batches_are_passed_again_after_a_crash(make_sink: MakeSink, calls: Calls) -> None:
    died = make_sink()
    died.prepare(BATCHES, BatchRows(VALUES))
    died.commit(BATCHES)
    again = [under_next_lease(attempt) for attempt in BATCHES]
    next_owner = make_sink()
    for attempt in again:
        next_owner.sweep({attempt.folder: attempt.fencing_token})
    assert next_owner.committed(again) == set()
    next_owner.prepare(again, BatchRows(VALUES))
    next_owner.commit(again)
    assert calls() == [(["a-1", "b-1"], ROWS)] * 2


def test_batch_without_rows_is_named_in_the_call(make_sink: MakeSink, calls: Calls) -> None:
    sink = make_sink()
    sink.prepare(BATCHES, BatchRows({"a-1": [], "b-1": []}))
    sink.commit(BATCHES)
    assert calls() == [(["a-1", "b-1"], [])]


def test_previous_owner_with_swept_rows_calls_nothing(make_sink: MakeSink, calls: Calls) -> None:
    former = make_sink()
    former.prepare(BATCHES, BatchRows(VALUES))
    for attempt in BATCHES:
        make_sink().sweep({attempt.folder: 2})
    with pytest.raises(CoordinationError):
        former.commit(BATCHES)
    assert calls() == []


def test_unprepared_and_discarded_batches_are_not_passed(make_sink: MakeSink, calls: Calls) -> None:
    sink = make_sink()
    with pytest.raises(CoordinationError):
        sink.commit(BATCHES)
    sink.prepare(BATCHES, BatchRows(VALUES))
    sink.discard(BATCHES)
    with pytest.raises(CoordinationError):
        sink.commit(BATCHES)
    assert calls() == []


def test_function_error_fails_its_batches_by_name(make_sink: MakeSink) -> None:
    sink = make_sink("failing")
    sink.prepare(BATCHES, BatchRows(VALUES))
    with pytest.raises(DeliveryError, match=r"failing' raised on 2 batches \(first: a-1\): .*the broker is away"):
        sink.commit(BATCHES)


def test_missing_function_is_found_before_any_delivery(make_sink: MakeSink) -> None:
    with pytest.raises(ConfigurationError, match="has no 'missing'; name one that it has: "):
        make_sink("missing").prepare(BATCHES, BatchRows(VALUES))


def test_missing_module_ends_the_job_at_start(tmp_path: Path) -> None:
    settings = ForeachBatch(function="no_such_module:publish", staging_path=str(tmp_path))
    message = "^ForeachBatch 'main': field 'function' is 'no_such_module:publish', but there is no module"
    with pytest.raises(ConfigurationError, match=message):
        ForeachBatchSink("main", settings).check()


def test_log_and_location_state_at_least_once(
    make_sink: MakeSink, module: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    make_sink().check()
    assert f"function {module}:publish receives each batch at least once" in caplog.text
    assert make_sink().location == f"at-least-once://{module}:publish"


def test_bucket_rows_are_read_with_the_connection_alone(
    spark: SparkSession, module: str, calls: Calls, s3: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    staging = f"s3://{s3_bucket}/staging"
    settings = {"function": f"{module}:publish", "staging_path": staging}
    sink_settings = SinkSettings(
        name="main", kind="foreach_batch", location="here", files=staging, aws=s3.settings, settings=settings
    )
    [sink] = make_sinks([sink_settings])
    sink.check()
    sink.prepare(BATCHES, BatchRows(VALUES, sink.access))
    sink.commit(BATCHES)
    assert calls() == [(["a-1", "b-1"], ROWS)]
    sink.discard(BATCHES)
    assert files_below(staging, sink.access) == []
