"""The application that spark-submit runs: it reads the job's settings, runs the job and returns an exit code."""

from __future__ import annotations

import gc
import json
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from airflow_provider_coordination.coordination.clock import SystemClock
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.spark.access import combined_access
from airflow_provider_coordination.spark.bad_records import BadRecords
from airflow_provider_coordination.spark.delivery import Delivery, load_transform
from airflow_provider_coordination.spark.ingestion_job import IngestionJob, Observer
from airflow_provider_coordination.spark.job_spark import JobSpark
from airflow_provider_coordination.spark.layout import RecordLayout
from airflow_provider_coordination.spark.membership import current_membership
from airflow_provider_coordination.spark.outcome import (
    APPLICATION_MARK,
    EXIT_CONFIGURATION,
    EXIT_FAILED,
    EXIT_LOST_WORK,
    EXIT_SUCCESS,
    SUMMARY_MARK,
    FollowedJob,
    Outcome,
    Summary,
    coordinating,
    followed_job,
)
from airflow_provider_coordination.spark.reading import JobSource, job_source
from airflow_provider_coordination.spark.redaction import LOG_FORMAT, Redaction
from airflow_provider_coordination.spark.refused_rows import RefusedRows
from airflow_provider_coordination.spark.settings import (
    ApplicationSettings,
    IngestSettings,
    SettingsReference,
    driver_arguments,
)
from airflow_provider_coordination.spark.sinks import (
    Sink,
    at_least_once_sinks,
    check_required_columns,
    make_sinks,
    routed_sinks,
)
from airflow_provider_coordination.spark.slots import check_executors, warm_up_executors
from airflow_provider_coordination.spark.spark_errors import DriverGoneError, error_text, is_of_gateway, root_cause
from airflow_provider_coordination.spark.stop_conditions import STOPPED, suspension_reason
from airflow_provider_coordination.spark.storage import check_writable
from airflow_provider_coordination.spark.telemetry import JobMetrics, JobSpans
from airflow_provider_coordination.spark.worker_daemon import import_compiled_pyspark
from airflow_provider_coordination.versions import find_installation, require_versions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from airflow_provider_coordination.sources.landed import EventTimeBounds
    from airflow_provider_coordination.spark.access import Access
    from airflow_provider_coordination.spark.decoded_payload import DecodedPayload
    from airflow_provider_coordination.spark.payload import JsonPayload

log = logging.getLogger(__name__)

A = TypeVar("A", bound=ApplicationSettings)
WARM_UP_SECONDS = 120.0
"""How long a job that is to take over from others waits for its executors."""
GC_THRESHOLDS = (100_000, 50, 100)
"""Thresholds of Python's cyclic garbage collector. With the defaults it takes an eighth of the driver's time for a
thousand partitions."""


def main(arguments: Sequence[str] | None = None, observer: Observer = lambda phase: None) -> int:
    """Run one ingestion job.

    :param arguments: see `driver_arguments`; by default those of the command line.
    :param observer: called at the end of each phase; for tests.
    :returns: the exit code: success, failed, lost work, or configuration.
    """

    def run(settings: IngestSettings, reference: SettingsReference) -> Outcome:
        with followed_job(settings, reference) as followed:
            outcome = outcome_of(settings, observer, followed)
            followed.record_outcome(outcome)
        return outcome

    return run_application(IngestSettings, arguments, run)


def run_application(
    cls: type[A], arguments: Sequence[str] | None, run: Callable[[A, SettingsReference], Outcome]
) -> int:
    """Run what an application is for; return its exit code.

    :param cls: the class of its settings.
    :param arguments: see `driver_arguments`; None for those of the command line.
    :param run: called with the settings and their location.
    """
    _prepare_process()
    try:
        text, owner = driver_arguments(sys.argv[1:] if arguments is None else arguments)
        reference = SettingsReference.parse(text)
        settings = cls.read(reference, owner, SystemClock().now())
        Redaction(settings).install()
        outcome = run(settings, reference)
    except (CoordinationError, ModuleNotFoundError) as error:  # before there was a record for the outcome
        outcome = _not_started(error)
    return EXIT_FAILED if outcome.exit_code is None else outcome.exit_code


def _prepare_process() -> None:
    """Prepare the driver's process: its log, its garbage collector, and where it imports Spark from."""
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
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)  # an unavailable collector is logged once an interval
    gc.set_threshold(*GC_THRESHOLDS)
    import_compiled_pyspark()


def outcome_of(settings: IngestSettings, observer: Observer, followed: FollowedJob) -> Outcome:
    """Run a job; log and return its outcome, which contains no secrets.

    A job in a thread that works for a member runs in the member's Spark application.

    :param observer: called at the end of each phase; for tests.
    :param followed: see `ingest`.
    """
    redaction = Redaction(settings)
    try:
        summary = ingest(settings, observer, followed)
    except Exception as error:  # for example of Spark, or of a killed JVM; the leases are given back already
        outcome = failed(error)
        return replace(outcome, error=redaction.text(outcome.error or ""))
    reported = redaction.mapping(summary.to_mapping())
    if current_membership() is None:  # otherwise the output has the summaries of many jobs, and their items have each
        sys.stdout.write(SUMMARY_MARK + json.dumps(reported) + "\n")
        sys.stdout.flush()
    last_error = None
    for partition, reason in summary.failed.items():
        last_error = redaction.text(f"failed: partition={partition}: {reason}")
        log.error("%s", last_error)
    if summary.failed:
        return Outcome(exit_code=EXIT_FAILED, error=last_error, summary=reported)
    if summary.lost:
        last_error = f"leases were lost; other workers continue these partitions: {', '.join(summary.lost)}"
        log.error("%s", last_error)
        return Outcome(exit_code=EXIT_LOST_WORK, error=last_error, summary=reported)
    return Outcome(exit_code=EXIT_SUCCESS, summary=reported)


def _not_started(error: CoordinationError | ModuleNotFoundError) -> Outcome:
    """Log why an application could not start its work; return the outcome."""
    if isinstance(error, ModuleNotFoundError):
        error = ConfigurationError(f"the driver's Python has no module {error.name!r}: install it there")
    return failed(error)


def failed(error: Exception) -> Outcome:
    """Log why a job failed; return the outcome."""
    if is_of_gateway(error):
        error = DriverGoneError()
    if isinstance(error, ConfigurationError):
        message = f"configuration error: {error}"
        log.error("%s", message)
        return Outcome(exit_code=EXIT_CONFIGURATION, error=message)
    if isinstance(error, CoordinationError):
        message = f"the job failed: {error}"
        log.error("%s", message)
    else:
        message = f"the job failed: {error_text(error)}"
        if cause := root_cause(error):
            message += f"; caused by {cause}"
        log.error("%s", message, exc_info=error)
    return Outcome(exit_code=EXIT_FAILED, error=message)


def ingest(settings: IngestSettings, observer: Observer, followed: FollowedJob | None = None) -> Summary:
    """Check everything that can be checked, cheapest first, then run the job.

    :param followed: receives the Spark application and the job report; passes on a request to stop the job.
    :raises ConfigurationError: if a setting cannot work.
    :raises CoordinationError: if a service cannot be reached.
    """
    read = job_source(settings.reads)
    log.info("job starts: source=%s reads=%s owner=%s", settings.source, read.name, settings.owner)
    spans = JobSpans(settings.owner, settings.source, settings.traceparent)
    with closing(JobMetrics(settings.owner)) as metrics, closing(spans), spans.span("job", reads=read.name):
        require_versions(find_installation(is_driver=True))
        sinks = make_sinks(settings.all_sinks)
        _check_locations(settings, sinks)
        with coordinating(settings, settings.owner, metrics) as coordinator:
            summary = _run(settings, read, sinks, coordinator, observer, metrics, spans, followed or FollowedJob())
    return replace(summary, metrics=metrics.totals, at_least_once=at_least_once_sinks(settings.writes))


def _check_locations(settings: IngestSettings, sinks: Sequence[Sink]) -> None:
    """Check that the job can write to all its locations.

    :raises ConfigurationError: naming the user's field.
    """
    for sink in sinks:
        sink.check()
    check_writable("field 'landing_path'", settings.landing_path, settings.access)
    if (taker := _taker_of_landed(settings, sinks)) is not None:
        taker.check_landing_path(settings.landing_path)


def _taker_of_landed(settings: IngestSettings, sinks: Sequence[Sink]) -> Sink | None:
    """Return the sink that takes landed files unchanged; None if the delivery must read the records."""
    [main, *others] = routed_sinks(sinks)
    return main if settings.publishes_landed and not others and main.accepts_landed_files else None


def _run(
    settings: IngestSettings,
    read: JobSource,
    sinks: Sequence[Sink],
    coordinator: SourceCoordinator,
    observer: Observer,
    metrics: JobMetrics,
    spans: JobSpans,
    followed: FollowedJob,
) -> Summary:
    if (suspension := coordinator.view.suspension()) is not None:  # before any other request or cost
        return Summary(stopped_because=suspension_reason(suspension))
    if not any(coordinator.view.count_by_status().values()):
        log.warning("source %s has no partitions yet: run the task that creates them first", settings.source)
    make_reading = read.opened(coordinator)
    if followed.is_stopped:  # before Spark starts
        return Summary(stopped_because=STOPPED)
    # Only for jobs that use Spark only to land; see `JobSpark`.
    imports = () if _taker_of_landed(settings, sinks) is None else read.worker_imports
    with naming_missing_files():
        spark = JobSpark(f"ingest {settings.source}", worker_imports=imports)
    stop = threading.Event()
    if not spark.is_shared:
        _stop_on_signal(spark, stop)
    try:
        application, ui = spark.context.applicationId, spark.context.uiWebUrl
        log.info("%s%s ui=%s", APPLICATION_MARK, application, ui or "none")
        followed.note_application(application, ui)
        followed.on_stop(partial(_stop_landing, spark, stop))
        bad_records = BadRecords.of(settings.bad_records)
        access = combined_access(settings.access, *(sink.access for sink in sinks))
        payload, bounds = _payload_of(settings, read.layout, access)
        columns = read.columns(spark) if _names_columns(settings, sinks) else None
        delivery = delivery_of(spark, settings, read.layout, columns, sinks, payload, bad_records)
        job = IngestionJob(
            settings,
            coordinator,
            delivery,
            reading=make_reading(spark),
            stop_at=read.stop_at,
            is_bounded=read.is_bounded,
            default_leases=read.default_leases,
            count_slots=spark.slots.lasting,
            stop=stop,
            bad_records=bad_records,
            bounds=bounds,
            is_shared=spark.is_shared,
            observer=observer,
            metrics=metrics,
            spans=spans,
        )
        if settings.replaces is not None or _all_are_read(coordinator.view):
            rehearse = partial(delivery.rehearse, read.layout.columns or columns, settings.landing_path)
            _warm_up(spark, stop, job, [*read.worker_imports, *settings.payload.modules], rehearse)
        followed.note_reading(job.report)
        _check_executors(spark, stop, settings.payload.modules)
        return job.run()
    finally:
        spark.stop()


def _warm_up(
    spark: JobSpark, stop: threading.Event, job: IngestionJob, modules: Sequence[str], rehearse: Callable[[], object]
) -> None:
    """Wait until executors are ready, while other jobs read what this one is to take over.

    If they are not in time, the other jobs may occupy the cluster. The job then takes over nevertheless.
    """
    try:
        if warm_up_executors(spark.context, modules, WARM_UP_SECONDS, rehearse):
            log.info("executors are ready; the job takes over from others")
            return
    except Exception:
        if not stop.is_set():  # otherwise the task was cancelled, and the job ends as it does before any round
            raise
        return
    reason = (
        f"no executor ran a task within {WARM_UP_SECONDS:.0f} s, so the job takes over before it is ready to read: "
        "give the cluster room for both jobs, or lower 'stop_task_count' or the size of the executors"
    )
    log.warning("%s", reason)
    job.note_error(reason, "ExecutorsNotReadyError")


def _all_are_read(view: SourceView) -> bool:
    """Return whether other jobs read all partitions, so that none has to wait for this job."""
    counts = view.count_by_status()
    return bool(counts.get(PartitionStatus.ASSIGNED)) and not counts.get(PartitionStatus.UNASSIGNED)


def _check_executors(spark: JobSpark, stop: threading.Event, modules: Sequence[str]) -> None:
    try:
        check_executors(spark.context, modules)
    except Exception:
        if not stop.is_set():  # otherwise the check was cancelled, and the job ends as it does before any round
            raise


def _payload_of(
    settings: IngestSettings, layout: RecordLayout, access: Access
) -> tuple[JsonPayload | DecodedPayload | None, EventTimeBounds | None]:
    """Return what parses payloads, and the bounds of late and early records; both need columns.

    :param access: the credentials for a file of descriptors.
    :raises ConfigurationError: if the schema is invalid, or has no such time.
    """
    if settings.schema is None and not settings.payload.is_decoded:
        return None, None
    from airflow_provider_coordination.spark.decoded_payload import payload_of
    from airflow_provider_coordination.spark.payload import bounds_of

    payload = payload_of(settings.payload, settings.schema, layout, settings.time_formats, access)
    return payload, bounds_of(settings.rejection, payload)


@contextmanager
def naming_missing_files() -> Iterator[None]:
    """Name the file if Spark cannot start without it.

    :raises ConfigurationError: if a file that the job ships does not exist.
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    try:
        yield
    except Py4JJavaError as error:
        cause = root_cause(error) or error_text(error)
        if "FileNotFoundException" in cause or "does not exist" in cause:
            raise ConfigurationError(
                f"Spark cannot start: {cause}; correct 'py_files', 'files', 'jars' or 'archives', or ship the file"
            ) from error
        raise


def _names_columns(settings: IngestSettings, sinks: Sequence[Sink]) -> bool:
    """Return whether settings name columns, or have a function that may do so."""
    return (
        settings.is_transformed
        or settings.schema is not None
        or settings.payload.is_decoded
        or any(sink.where is not None or any(sink.required_columns.values()) for sink in sinks)
    )


def delivery_of(
    spark: JobSpark,
    settings: IngestSettings,
    layout: RecordLayout,
    columns: StructType | None,
    sinks: Sequence[Sink],
    payload: JsonPayload | DecodedPayload | None,
    bad_records: BadRecords,
) -> Delivery:
    """Return the delivery that the settings describe.

    :param columns: the columns of landed records; None if they are not known.
    :raises ConfigurationError: if a column is missing that the settings name, or the transform fails on any records.
    """
    set_refused_rows_aside(settings, layout, sinks, bad_records)
    if (taker := _taker_of_landed(settings, sinks)) is not None:
        if columns is not None:
            check_required_columns(routed_sinks(sinks), columns.names)
        return taker.landed_delivery(keep=bool(settings.acknowledgments.handles))
    from airflow_provider_coordination.spark.transformation import Transformation
    from airflow_provider_coordination.spark.transformed_delivery import TransformedDelivery

    access = combined_access(settings.access, *(sink.access for sink in sinks))
    transformation = Transformation(
        spark.session,
        routed_sinks(sinks),
        layout=layout,
        # Loaded after the session exists: a decorator such as udf("long") needs it while its module is imported.
        transform=None if settings.transform is None else load_transform(settings.transform),
        options=settings,
        payload=payload,
        access=access,
    )
    transformation.check(columns)
    return TransformedDelivery(
        transformation,
        sinks,
        source=settings.source,
        bad_records=bad_records,
        keeps_rejected=settings.bad_records.keeps_rejected,
        is_final=not settings.acknowledgments.handles,
        access=access,
    )


def set_refused_rows_aside(
    settings: IngestSettings, layout: RecordLayout, sinks: Sequence[Sink], bad_records: BadRecords
) -> None:
    """Let the sinks set rows aside that they refuse, if the settings allow that."""
    path, max_share = settings.bad_records.dead_letter_path, settings.bad_records.max_refused_share
    if path is None or max_share is None:
        return
    rows = RefusedRows(
        path,
        layout=layout,
        source=settings.source,
        max_share=max_share,
        bad_records=bad_records,
        access=combined_access(settings.access, *(sink.access for sink in sinks)),
    )
    for sink in routed_sinks(sinks):
        if sink.refuses_rows:
            sink.refused_rows = rows


def _stop_on_signal(spark: JobSpark, stop: threading.Event) -> None:
    """Let SIGTERM and SIGINT end the job: it abandons landing, delivers recorded batches and gives back its leases."""

    def stopping(number: int, frame: object) -> None:
        log.warning("%s received: the job ends after the present step", signal.Signals(number).name)
        _stop_landing(spark, stop)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stopping)


def _stop_landing(spark: JobSpark, stop: threading.Event) -> None:
    stop.set()
    # From another thread: this one may be in the middle of a call to the JVM.
    threading.Thread(target=spark.cancel_landing, daemon=True).start()
