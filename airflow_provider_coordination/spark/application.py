"""The application that spark-submit runs: settings in, exit code out."""

from __future__ import annotations

import gc
import json
import logging
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial

from airflow_provider_coordination.coordination.clock import SystemClock
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.spark.access import together
from airflow_provider_coordination.spark.bad_records import BadRecords
from airflow_provider_coordination.spark.delivery import Delivery, load_transform
from airflow_provider_coordination.spark.event_time import bounds_of
from airflow_provider_coordination.spark.ingestion import Ingestion, Observer
from airflow_provider_coordination.spark.job_source import JobSource, job_source
from airflow_provider_coordination.spark.job_spark import JobSpark
from airflow_provider_coordination.spark.layout import RecordLayout
from airflow_provider_coordination.spark.metrics import JobMetrics
from airflow_provider_coordination.spark.outcome import Followed, Outcome, coordinator_of, following
from airflow_provider_coordination.spark.payload import JsonPayload
from airflow_provider_coordination.spark.pyspark_path import import_compiled_pyspark
from airflow_provider_coordination.spark.redaction import LOG_FORMAT, Redaction
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.spark.settings_reference import SettingsReference
from airflow_provider_coordination.spark.sinks import Sink, TakesLanded, at_least_once, make_sinks
from airflow_provider_coordination.spark.slots import JOB_GROUP
from airflow_provider_coordination.spark.spans import JobSpans
from airflow_provider_coordination.spark.stop_conditions import STOPPED, because_of
from airflow_provider_coordination.spark.storage import check_writable
from airflow_provider_coordination.spark.summary import Summary
from airflow_provider_coordination.spark.transformation import SparkTransformation
from airflow_provider_coordination.spark.transformed_delivery import DeliverTransformed, routed
from airflow_provider_coordination.versions import find_installation, require_versions

log = logging.getLogger(__name__)

EXIT_SUCCESS = 0
EXIT_FAILED = 1
"""Something failed; what is landed stays, and the next job goes on from there."""
EXIT_LOST_WORK = 75
"""Leases were lost on the way (EX_TEMPFAIL): others go on with their partitions, and running again is right."""
EXIT_CONFIGURATION = 78
"""The settings are wrong (EX_CONFIG): running again changes nothing."""

SUMMARY_MARK = "coordination-summary: "
"""Starts the line that holds the job's summary as JSON."""
COLLECTIONS = (100_000, 50, 100)
"""When Python looks for objects that only hold each other: with its defaults, over a thousand partitions, an eighth of
the driver's time."""
APPLICATION_MARK = "spark application: "
"""Stands before the Spark application's id and the address of its UI."""


def main(arguments: Sequence[str] | None = None, observer: Observer = lambda phase: None) -> int:
    """Run one ingestion job.

    :param arguments: the reference of the job's settings, and its owner; the command line's by default.
    :param observer: told of passed phases; for tests.
    :returns: the exit code: success, failed, lost work, or configuration.
    """
    logging.basicConfig(
        stream=sys.stdout,
        level=logging.INFO,
        format=LOG_FORMAT,
        force=True,
    )
    logging.getLogger("py4j").setLevel(logging.WARNING)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):  # pyspark's: errors with traces and payloads
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger("botocore").setLevel(logging.WARNING)
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)  # a collector that is away is told once an interval
    gc.set_threshold(*COLLECTIONS)
    import_compiled_pyspark()
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if len(given) != 2:
            raise ConfigurationError(f"expected two arguments, the job's settings and its owner; got {len(given)}")
        reference = SettingsReference.parse(given[0])
        settings = IngestSettings.read(reference, given[1], SystemClock().now())
        Redaction(settings).install()
        with following(settings, reference) as followed:
            outcome = _outcome(settings, observer, followed)
            followed.ended(outcome)
    except CoordinationError as error:  # before there was a record to leave an outcome in
        outcome = _failed(error)
    return EXIT_FAILED if outcome.exit_code is None else outcome.exit_code


def _outcome(settings: IngestSettings, observer: Observer, followed: Followed) -> Outcome:
    """Run the job; log how it ended, and return it; the outcome holds no secret."""
    redaction = Redaction(settings)
    try:
        summary = ingest(settings, observer, followed)
    except Exception as error:  # of Spark, of the JVM that was killed: whatever it is, the leases went back
        failed = _failed(error)
        return replace(failed, error=redaction.text(failed.error or ""))
    told = redaction.mapping(summary.to_mapping())
    sys.stdout.write(SUMMARY_MARK + json.dumps(told) + "\n")
    sys.stdout.flush()
    last_error = None
    for partition, reason in summary.failed.items():
        last_error = redaction.text(f"failed: partition={partition}: {reason}")
        log.error("%s", last_error)
    if summary.failed:
        return Outcome(exit_code=EXIT_FAILED, error=last_error, summary=told)
    if summary.lost:
        last_error = f"leases were lost, others go on with these partitions: {', '.join(summary.lost)}"
        log.error("%s", last_error)
        return Outcome(exit_code=EXIT_LOST_WORK, error=last_error, summary=told)
    return Outcome(exit_code=EXIT_SUCCESS, summary=told)


def _failed(error: Exception) -> Outcome:
    """Log why the job failed; return it."""
    if isinstance(error, ConfigurationError):
        said = f"configuration error: {error}"
        log.error("%s", said)
        return Outcome(exit_code=EXIT_CONFIGURATION, error=said)
    if isinstance(error, CoordinationError):
        said = f"the job failed: {error}"
        log.error("%s", said)
    else:
        said = f"the job failed: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
        log.error("%s", said, exc_info=error)
    return Outcome(exit_code=EXIT_FAILED, error=said)


def ingest(settings: IngestSettings, observer: Observer, followed: Followed | None = None) -> Summary:
    """Check everything that can be checked, cheapest first, then run the job.

    :param followed: told of the Spark application; tells of a wish that the job stop.
    :raises ConfigurationError: if a setting cannot work.
    :raises CoordinationError: if a service cannot be reached.
    """
    read = job_source(settings.reads)
    log.info("job starts: source=%s reads=%s owner=%s", settings.source, read.name, settings.owner)
    spans = JobSpans(settings.owner, settings.source, settings.traceparent)
    with closing(JobMetrics(settings.owner)) as metrics, closing(spans), spans.span("job", reads=read.name):
        summary = _ingest(settings, read, observer, metrics, spans, followed or Followed())
    return replace(summary, metrics=metrics.totals, at_least_once=at_least_once(settings.writes))


def _ingest(
    settings: IngestSettings,
    read: JobSource,
    observer: Observer,
    metrics: JobMetrics,
    spans: JobSpans,
    followed: Followed,
) -> Summary:
    require_versions(find_installation(is_driver=True))
    sinks = make_sinks(settings.all_sinks)
    _check_places(settings, sinks)
    coordinator = coordinator_of(settings, settings.owner, metrics)
    with closing(coordinator.store):
        return _run(settings, read, sinks, coordinator, observer, metrics, spans, followed)


def _check_places(settings: IngestSettings, sinks: Sequence[Sink]) -> None:
    """Check that everything can be written that the job writes.

    :raises ConfigurationError: naming the user's field.
    """
    for sink in sinks:
        sink.check()
    check_writable("field 'landing_path'", settings.landing_path, settings.access)
    if (taker := _taker_of_landed(settings, sinks)) is not None:
        taker.check_landing(settings.landing_path)


def _taker_of_landed(settings: IngestSettings, sinks: Sequence[Sink]) -> TakesLanded | None:
    """Return the sink that takes landed files as they are; None if somebody has to look into the records."""
    [main, *others] = routed(sinks)
    return main if settings.publishes_landed and not others and isinstance(main, TakesLanded) else None


def _run(
    settings: IngestSettings,
    read: JobSource,
    sinks: Sequence[Sink],
    coordinator: SourceCoordinator,
    observer: Observer,
    metrics: JobMetrics,
    spans: JobSpans,
    followed: Followed,
) -> Summary:
    if (suspension := coordinator.view.suspension()) is not None:  # before anything is asked, or costs anything
        return Summary(stopped_because=because_of(suspension))
    if not any(coordinator.view.count_by_status().values()):
        log.warning("source %s has no partitions yet: run the task that creates them first", settings.source)
    make_reading = read.opened(coordinator)
    if followed.is_stopped:  # before it cost anything
        return Summary(stopped_because=STOPPED)
    # Where the job asks nothing of Spark but to land; see `JobSpark`.
    imports = () if _taker_of_landed(settings, sinks) is None else read.worker_imports
    spark = JobSpark(f"ingest {settings.source}", worker_imports=imports)
    stop = threading.Event()
    _stop_on_signal(spark, stop)
    try:
        application, ui = spark.context.applicationId, spark.context.uiWebUrl
        log.info("%s%s ui=%s", APPLICATION_MARK, application, ui or "none")
        followed.began(application, ui)
        followed.when_stopped(partial(_stop_landing, spark, stop))
        bad_records = BadRecords(
            settings.bad_records.max_parse_exceptions, settings.bad_records.max_saved_parse_exceptions
        )
        payload = None if settings.schema is None else JsonPayload(settings.schema, read.layout)
        bounds = bounds_of(settings.rejection, payload)
        delivery = delivery_of(spark, settings, read.layout, sinks, payload, bad_records)
        job = Ingestion(
            settings,
            coordinator,
            delivery,
            reading=make_reading(spark),
            stop_at=read.stop_at,
            is_bounded=read.is_bounded,
            default_leases=read.default_leases,
            stop=stop,
            bad_records=bad_records,
            bounds=bounds,
            observer=observer,
            metrics=metrics,
            spans=spans,
        )
        followed.reads(job.report)
        return job.run()
    finally:
        spark.stop()


def delivery_of(
    spark: JobSpark,
    settings: IngestSettings,
    layout: RecordLayout,
    sinks: Sequence[Sink],
    payload: JsonPayload | None,
    bad_records: BadRecords,
) -> Delivery:
    """Return what takes batches into the sinks, as the settings say."""
    if (taker := _taker_of_landed(settings, sinks)) is not None:
        return taker.taking_landed(keep=bool(settings.acknowledgments.handles))
    access = together(settings.access, *(sink.access for sink in sinks))
    transformation = SparkTransformation(
        spark.session,
        routed(sinks),
        layout=layout,
        # Loaded with the session there already: a decorator such as udf("long") asks for it while its module is
        # imported.
        transform=None if settings.transform is None else load_transform(settings.transform),
        per_batch=settings.per_batch,
        payload=payload,
        access=access,
    )
    transformation.check()
    return DeliverTransformed(
        transformation,
        sinks,
        source=settings.source,
        found=bad_records,
        keeps_rejected=settings.bad_records.keeps_rejected,
        is_final=not settings.acknowledgments.handles,
        access=access,
    )


def _stop_on_signal(spark: JobSpark, stop: threading.Event) -> None:
    """Let SIGTERM and SIGINT end the job: landing is abandoned, what is recorded is delivered, leases go back."""

    def stopping(number: int, frame: object) -> None:
        log.warning("%s received: the job ends after the step in hand", signal.Signals(number).name)
        _stop_landing(spark, stop)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stopping)


def _stop_landing(spark: JobSpark, stop: threading.Event) -> None:
    stop.set()
    # From another thread: this one may be in the middle of a call to the JVM.
    threading.Thread(target=lambda: spark.context.cancelJobGroup(JOB_GROUP), daemon=True).start()
