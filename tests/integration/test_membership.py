"""Jobs that share one Spark application do not affect each other."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.application import outcome_of
from airflow_provider_coordination.spark.job_spark import JobSpark
from airflow_provider_coordination.spark.membership import LANDING, POOL, Membership, cancel_jobs, working_for
from airflow_provider_coordination.spark.outcome import EXIT_CONFIGURATION, EXIT_SUCCESS, FollowedJob, Outcome
from airflow_provider_coordination.spark.slots import land_in_slots
from demo.local_kinesis import LocalKinesis
from tests.support.spark_job import Pipeline
from tests.support.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Row:
    """What a slot lands of a partition."""

    partition: int


def landing_until(file: Path, plans: Sequence[int]) -> list[Row]:
    """Land once a file exists."""
    while not file.exists():
        time.sleep(0.05)
    return [Row(plan) for plan in plans]


def as_member(context: SparkContext, source: str, work: Callable[[], Any]) -> Any:
    """Do something for a member, in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(in_this_thread, context, source, work).result()


def in_this_thread(context: SparkContext, source: str, work: Callable[[], Any]) -> Any:
    """Do something in this thread for a member."""
    with working_for(Membership(context, source, f"owner,of {source}")):
        return work()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def make_source(
    kinesis: LocalKinesis, kinesis_stream: Callable[[int], str], tmp_path: Path
) -> Callable[[str], Pipeline]:
    """Make a source with records in a stream of its own; all sources have one store."""

    def make(source: str) -> Pipeline:
        folder = tmp_path / source
        folder.mkdir()
        pipeline = Pipeline(kinesis, kinesis_stream(1), folder, f"sqlite:///{tmp_path}/coordination.db", source=source)
        pipeline.send(3)
        pipeline.sync()
        return pipeline

    return make


@pytest.mark.parametrize("cancel", [JobSpark.cancel_landing, lambda spark: cancel_jobs(spark.context)])
def test_cancelling_a_members_landing_spares_the_others(
    spark: SparkSession, threads: ThreadPoolExecutor, tmp_path: Path, cancel: Callable[[JobSpark], None]
) -> None:
    context, release = spark.sparkContext, tmp_path / "release"
    joined: dict[str, JobSpark] = {}
    begun = {source: threading.Event() for source in ("clicks", "views")}

    def work(source: str) -> list[Row]:
        joined[source] = JobSpark(source)
        begun[source].set()
        return land_in_slots(context, [[1]], partial(landing_until, release), Row)

    working: dict[str, Future[list[Row]]] = {
        source: threads.submit(as_member, context, source, partial(work, source)) for source in begun
    }
    for event in begun.values():
        assert event.wait(PATIENCE_SECONDS)
    tracker = context.statusTracker()
    while len(tracker.getActiveJobsIds()) < 2:
        time.sleep(0.05)
    as_member(context, "clicks", lambda: cancel(joined["clicks"]))
    with pytest.raises(Exception, match="cancelled"):
        working["clicks"].result(PATIENCE_SECONDS)
    release.touch()
    assert working["views"].result(PATIENCE_SECONDS) == [Row(1)]


def test_landings_of_all_members_wait_in_one_queue(spark: SparkSession, tmp_path: Path) -> None:
    def pools() -> tuple[str | None, str | None]:
        joined, before = JobSpark("clicks"), spark.sparkContext.getLocalProperty(POOL)
        (tmp_path / "go").touch()
        land_in_slots(joined.context, [[1]], partial(landing_until, tmp_path / "go"), Row)
        return before, spark.sparkContext.getLocalProperty(POOL)

    assert as_member(spark.sparkContext, "clicks", pools) == ("clicks", LANDING)


def test_members_have_sessions_of_their_own_and_leave_spark_running(spark: SparkSession) -> None:
    def view(source: str) -> bool:
        joined = JobSpark(source)
        joined.session.range(1).createOrReplaceTempView(f"seen_by_{source}")
        assert joined.session.conf.get("spark.sql.session.timeZone") == "UTC"
        assert joined.session.conf.get("spark.sql.ansi.enabled") == "true"
        found = joined.session.catalog.tableExists("seen_by_clicks")
        joined.stop()
        return found

    assert as_member(spark.sparkContext, "clicks", lambda: view("clicks"))
    assert not as_member(spark.sparkContext, "views", lambda: view("views"))
    assert spark.range(3).count() == 3


def test_member_needs_threads_with_their_own_spark_jobs(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PIN_THREAD", "false")
    with pytest.raises(ConfigurationError, match=r"PYSPARK_PIN_THREAD is 'false' .* unset it there"):
        as_member(spark.sparkContext, "clicks", lambda: JobSpark("clicks"))


def test_member_that_fails_stops_no_other(
    spark: SparkSession,
    threads: ThreadPoolExecutor,
    make_source: Callable[[str], Pipeline],
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from tests.support import transforms  # its functions need a Spark context

    caplog.set_level(logging.INFO)
    transforms.NOTED.clear()
    clicks, views, broken = (make_source(source) for source in ("clicks", "views", "broken"))
    handler = signal.getsignal(signal.SIGTERM)

    def run(pipeline: Pipeline, transform: str | None) -> Future[Outcome]:
        settings = pipeline.settings(transform=transform)
        job = partial(outcome_of, settings, lambda phase: None, FollowedJob())
        return threads.submit(as_member, spark.sparkContext, pipeline.source, job)

    ends = [
        run(clicks, "tests.support.transforms:noting"),
        run(views, None),
        run(broken, "no_such_module:clean"),
    ]
    assert [each.result(PATIENCE_SECONDS).exit_code for each in ends] == [
        EXIT_SUCCESS,
        EXIT_SUCCESS,
        EXIT_CONFIGURATION,
    ]
    clicks.assert_exactly_once()
    views.assert_exactly_once()
    assert not broken.delivered()
    assert ends[0].result().summary["records_delivered"] == 30
    assert {pool for pool, _ in transforms.NOTED} == {"clicks"}, "also in the thread that delivers"
    assert all(session is not spark for _, session in transforms.NOTED)
    assert signal.getsignal(signal.SIGTERM) is handler
    assert "coordination-summary" not in capsys.readouterr().out
    assert spark.range(3).count() == 3 and spark.sparkContext.getLocalProperty(POOL) is None
