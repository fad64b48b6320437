"""A Spark job that ingests a Kinesis stream under leases, as a task."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Context

from airflow_provider_coordination.coordination.acknowledgment import run_name
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.aws import aws_settings
from airflow_provider_coordination.hooks.coordination import ConnectionSettings, CoordinationHook
from airflow_provider_coordination.hooks.task_try import failing_when_misconfigured, owner_of_try
from airflow_provider_coordination.operators.job_output import JobOutput
from airflow_provider_coordination.operators.shipping import (
    end_processes,
    job_processes,
    local_environment,
    packaged_application,
    write_package_archive,
)
from airflow_provider_coordination.operators.templated import (
    NOTHING,
    instant_value,
    names_value,
    number_value,
    seconds_value,
    source_name,
    stream_names,
    text_value,
    whole_value,
    yes_or_no_value,
)
from airflow_provider_coordination.spark.settings import IngestSettings, SinkSettings

APPLICATION = "kinesis_ingest.py"
DOWNSTREAM = "downstream"
"""The handle of those who acknowledge after the job, where no other is named."""
SINK_FIELDS = ("name", "output_path", "where")
START_WITHIN = timedelta(hours=1)


@dataclass(kw_only=True)
class _Job:
    """The job of one try: what it is told, what it says, and what has to be undone if it fails."""

    settings: IngestSettings
    connection: ConnectionSettings
    settings_file: Path
    package_archive: Path
    output: JobOutput = field(default_factory=JobOutput)
    abandoned: bool = False


class CoordinatedSparkSubmitOperator(SparkSubmitOperator):
    """Runs one Spark job that leases shards of Kinesis streams and lands them, as Parquet, in a dataset.

    Any number of these tasks may work on one source at once, in one run or in several: leases share the
    shards out.

    The job is told everything in a file that only its owner can read and that is removed afterwards; no
    secret is on the command line, in the Spark configuration, in the environment set here or in the log. The
    package itself travels as an archive in `py_files`. Keys of the AWS connection travel in the file if it
    holds any; otherwise the driver and the executors each ask the AWS SDK's default chain where they run.

    When the job fails, is killed or times out, its processes are ended and its leases given back at once, so
    that others go on without waiting for a timeout. Wrong settings fail the task without a retry; lost leases
    and everything else may be retried: each try is a new owner, and submits a new job.

    With deploy mode `cluster` (YARN, Kubernetes) the settings file travels in `files`, and the application
    finds it by its bare name in the driver's working directory. Exit code and summary are then known only as
    far as the cluster reports them; wrong settings look like any other failure. Spark does not run Python
    drivers in cluster mode on a standalone master.

    Returns the job's summary, with its `owner`.

    Parameters of `SparkSubmitOperator` that are not named here work as they do there, except `durable`, which
    has no use: a new job beside a forgotten one is harmless under leases.

    :param stream_name: the Kinesis stream, or a list of them. (templated)
    :param output_path: where the dataset is: a path or URI that every worker reaches. (templated)
    :param source: the source's name; the stream's by default, which needs a name if there are several. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    :param aws_conn_id: the AWS connection; None for the AWS SDK's default chain. (templated)
    :param region_name: the AWS region; wins over the connections'. (templated)
    :param landing_path: where raw batches wait for delivery; `<output_path>/_landing` by default. (templated)
    :param transform: `module:function`, from DataFrame to DataFrame; None publishes the raw records.
        (templated)
    :param schema: what the payload holds, as DDL such as `id STRING NOT NULL, amount DOUBLE`: it is parsed as JSON
        into columns before the transform; None leaves it alone. (templated)
    :param where: which records go to `output_path`: a SQL predicate over the transformed columns; None for all.
        (templated)
    :param sinks: other datasets beside `output_path`: each a mapping with `name`, `output_path` and, if it is not
        to take every record, `where`. (templated)
    :param dead_letter_path: where bad records go, with what is wrong with them: a path or URI that every worker
        reaches; without it, a bad record fails its batch. (templated)
    :param max_parse_exceptions: most bad records in one run of the job; None for any number. (templated)
    :param max_saved_parse_exceptions: of how many bad records, the latest ones, the result tells. (templated)
    :param acknowledge: who says that a batch is delivered: `"job"`, which is done with it once its sinks have it;
        `"downstream"` for somebody after the job, such as an `AcknowledgeOperator`; or a list of the names of
        those who do. (templated)
    :param acknowledgment_timeout: how long a batch may wait for an acknowledgment without progress, before it is
        delivered again; timedelta or seconds; None for the application's default. (templated)
    :param max_pending_batches: how many batches of one shard may be landed and not acknowledged; None for the
        application's default. (templated)
    :param workers: how many jobs are expected to share the source. (templated)
    :param max_leases: most shards this job holds, however large its fair share; None for no limit. (templated)
    :param until_caught_up: stop when everything that was in the stream at the start is delivered. (templated)
    :param max_duration: start no round later than this after the start; timedelta or seconds. (templated)
    :param max_idle_rounds: stop after so many rounds in a row without a record. (templated)
    :param round_seconds: how long a shard is read in one round; None for the application's default.
        (templated)
    :param idle_seconds: pause after a round without a record; None for the application's default. (templated)
    :param max_batch_bytes: most bytes read of one shard in one round; None for the application's default.
        (templated)
    :param stop_at: deliver what arrived before this instant, exactly, and stop: an aware datetime, its ISO 8601 text,
        or `"start"` for what is there when the task begins; None reads on. (templated)
    :param on_data_loss: what becomes of a shard whose data is gone before it was read: `"fail"` parks that shard,
        `"reset"` reads on behind the gap and records it. (templated)
    :param filter_by_hash_range: drop user records of an aggregate that belong to another shard. (templated)
    :param consumer_name: read by enhanced fan-out, as the consumer of this name, which is registered if it is missing;
        None polls. (templated)
    :param balance_by: what jobs share evenly: `"count"` of shards, or their `"throughput"`. (templated)
    :param max_leases_to_steal: how many shards this job asks others for at a time. (templated)
    :param handover_timeout: how long an owner may take to hand over a shard that another job asked for; timedelta or
        seconds; None for the application's default. (templated)
    :param shard_sync_interval: how often the job looks after the streams' shards itself; timedelta or seconds; 0 leaves
        that to `KinesisShardSyncOperator`, None is the application's default. (templated)
    :param repartition_transition_duration: how long after the end of a shard its children are first read; timedelta or
        seconds; None for at once. (templated)
    :param application: the program; by default the one that comes with this package. (templated)
    """

    template_fields: Sequence[str] = (
        *SparkSubmitOperator.template_fields,
        "stream_name",
        "output_path",
        "source",
        "coordination_conn_id",
        "aws_conn_id",
        "region_name",
        "landing_path",
        "transform",
        "schema",
        "where",
        "sinks",
        "dead_letter_path",
        "max_parse_exceptions",
        "max_saved_parse_exceptions",
        "acknowledge",
        "acknowledgment_timeout",
        "max_pending_batches",
        "workers",
        "max_leases",
        "until_caught_up",
        "max_duration",
        "max_idle_rounds",
        "round_seconds",
        "idle_seconds",
        "max_batch_bytes",
        "stop_at",
        "on_data_loss",
        "filter_by_hash_range",
        "consumer_name",
        "balance_by",
        "max_leases_to_steal",
        "handover_timeout",
        "shard_sync_interval",
        "repartition_transition_duration",
    )

    def __init__(
        self,
        *,
        stream_name: str | Sequence[str],
        output_path: str,
        source: str | None = None,
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        aws_conn_id: str | None = "aws_default",
        region_name: str | None = None,
        landing_path: str | None = None,
        transform: str | None = None,
        schema: str | None = None,
        where: str | None = None,
        sinks: Sequence[Mapping[str, str | None]] = (),
        dead_letter_path: str | None = None,
        max_parse_exceptions: int | str | None = None,
        max_saved_parse_exceptions: int | str = 0,
        acknowledge: str | Sequence[str] = "job",
        acknowledgment_timeout: timedelta | float | str | None = None,
        max_pending_batches: int | str | None = None,
        workers: int | str = 1,
        max_leases: int | str | None = None,
        until_caught_up: bool | str = True,
        max_duration: timedelta | float | str | None = None,
        max_idle_rounds: int | str | None = None,
        round_seconds: float | str | None = None,
        idle_seconds: float | str | None = None,
        max_batch_bytes: int | str | None = None,
        stop_at: datetime | str | None = None,
        on_data_loss: str = "fail",
        filter_by_hash_range: bool | str = True,
        consumer_name: str | None = None,
        balance_by: str = "count",
        max_leases_to_steal: int | str = 1,
        handover_timeout: timedelta | float | str | None = None,
        shard_sync_interval: timedelta | float | str | None = None,
        repartition_transition_duration: timedelta | float | str | None = None,
        application: str = "",
        name: str = "kinesis-ingest",
        **kwargs: Any,
    ) -> None:
        if kwargs.get("durable") or kwargs.get("reconnect_on_retry"):
            raise ValueError("durable=True is not supported: each try is a new owner; leases make a new job harmless")
        super().__init__(application=application, name=name, **kwargs)
        self.durable = False
        self.stream_name = stream_name
        self.output_path = output_path
        self.source = source
        self.coordination_conn_id = coordination_conn_id
        self.aws_conn_id = aws_conn_id
        self.region_name = region_name
        self.landing_path = landing_path
        self.transform = transform
        self.schema = schema
        self.where = where
        self.sinks = sinks
        self.dead_letter_path = dead_letter_path
        self.max_parse_exceptions = max_parse_exceptions
        self.max_saved_parse_exceptions = max_saved_parse_exceptions
        self.acknowledge = acknowledge
        self.acknowledgment_timeout = acknowledgment_timeout
        self.max_pending_batches = max_pending_batches
        self.workers = workers
        self.max_leases = max_leases
        self.until_caught_up = until_caught_up
        self.max_duration = max_duration
        self.max_idle_rounds = max_idle_rounds
        self.round_seconds = round_seconds
        self.idle_seconds = idle_seconds
        self.max_batch_bytes = max_batch_bytes
        self.stop_at = stop_at
        self.on_data_loss = on_data_loss
        self.filter_by_hash_range = filter_by_hash_range
        self.consumer_name = consumer_name
        self.balance_by = balance_by
        self.max_leases_to_steal = max_leases_to_steal
        self.handover_timeout = handover_timeout
        self.shard_sync_interval = shard_sync_interval
        self.repartition_transition_duration = repartition_transition_duration
        self._job: _Job | None = None

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Submit the job, wait for its end and return its summary.

        :raises AirflowFailException: if only a person can put things right.
        :raises AirflowException: if the job failed or lost its leases; a retry continues where it stopped.
        """
        with failing_when_misconfigured():
            connection = CoordinationHook(self.coordination_conn_id).settings
            settings = self._ingest_settings(connection, context)
            self.application = self.application or packaged_application(APPLICATION)
            # A store that does not answer is better known before Spark is started.
            connection.coordinator(settings.source, settings.owner).store.close()
        streams = ", ".join(settings.streams)
        self.log.info("job of source=%s streams=%s owner=%s", settings.source, streams, settings.owner)
        with TemporaryDirectory(prefix="coordination-") as name:
            folder = Path(name)  # made for its owner alone
            self._hook = None
            self._job = job = _Job(
                settings=settings,
                connection=connection,
                settings_file=folder / f"{folder.name}.json",
                package_archive=write_package_archive(folder),
            )
            settings.write(job.settings_file)
            try:
                super().execute(context)
            except BaseException as error:
                self._abandon_job()
                explained = job.output.explained(self._exit_code)
                if explained is None or not isinstance(error, Exception):
                    raise
                raise explained from None
        return {"owner": settings.owner, **job.output.summary}

    def on_kill(self) -> None:
        """End the job and give its leases back. Runs in a signal handler, so it asks nothing of Airflow."""
        self._abandon_job()

    def _ingest_settings(self, connection: ConnectionSettings, context: Context) -> IngestSettings:
        ti: Any = context["ti"]
        tuning = {
            "round_seconds": number_value("round_seconds", self.round_seconds),
            "idle_seconds": number_value("idle_seconds", self.idle_seconds),
            "max_batch_bytes": whole_value("max_batch_bytes", self.max_batch_bytes),
            "acknowledgment_timeout_seconds": seconds_value("acknowledgment_timeout", self.acknowledgment_timeout),
            "max_pending_batches": whole_value("max_pending_batches", self.max_pending_batches),
            "max_leases_to_steal": whole_value("max_leases_to_steal", self.max_leases_to_steal),
            "handover_timeout_seconds": seconds_value("handover_timeout", self.handover_timeout),
            "repartition_transition_seconds": seconds_value(
                "repartition_transition_duration", self.repartition_transition_duration
            ),
        }
        streams = stream_names(self.stream_name)
        sync_interval = seconds_value("shard_sync_interval", self.shard_sync_interval)
        settings = IngestSettings(
            source=source_name(text_value(self.source), streams),
            owner=owner_of_try(context),
            streams=streams,
            output=str(self.output_path),
            expires_at=datetime.now(UTC) + (self.execution_timeout or START_WITHIN),
            store=connection.store,
            prefix=connection.prefix,
            kinesis=aws_settings(
                text_value(self.aws_conn_id),
                text_value(self.region_name),
                service="kinesis",
                default_region=connection.region,
            ),
            landing=text_value(self.landing_path),
            transform=text_value(self.transform),
            schema=text_value(self.schema),
            where=text_value(self.where),
            sinks=self._sinks(),
            dead_letter=text_value(self.dead_letter_path),
            max_parse_exceptions=whole_value("max_parse_exceptions", self.max_parse_exceptions),
            max_saved_parse_exceptions=(
                whole_value("max_saved_parse_exceptions", self.max_saved_parse_exceptions) or 0
            ),
            downstream=self._handles(),
            run=run_name(ti.dag_id, ti.run_id),
            ownership_timeout_seconds=connection.ownership_timeout.total_seconds(),
            safety_margin_seconds=connection.safety_margin.total_seconds(),
            workers=whole_value("workers", self.workers) or 1,
            max_leases=whole_value("max_leases", self.max_leases),
            until_caught_up=yes_or_no_value("until_caught_up", self.until_caught_up),
            max_duration_seconds=seconds_value("max_duration", self.max_duration),
            max_idle_rounds=whole_value("max_idle_rounds", self.max_idle_rounds),
            stop_at=instant_value("stop_at", self.stop_at, now=datetime.now(UTC)),
            on_data_loss=str(self.on_data_loss),
            filter_by_hash_range=yes_or_no_value("filter_by_hash_range", self.filter_by_hash_range),
            consumer_name=text_value(self.consumer_name),
            balance_by=str(self.balance_by),
            shard_sync_interval_seconds=(
                IngestSettings.shard_sync_interval_seconds if sync_interval is None else sync_interval or None
            ),
            **{name: value for name, value in tuning.items() if value is not None},  # type: ignore[arg-type]
        )
        settings.check()
        return settings

    def _sinks(self) -> tuple[SinkSettings, ...]:
        """Return the sinks beside the main one."""
        sinks: Any = self.sinks
        if sinks in NOTHING:
            return ()
        if isinstance(sinks, (str, Mapping)) or not isinstance(sinks, Sequence):
            raise ConfigurationError(f"field 'sinks' must be a list of mappings; got {sinks!r}")
        return tuple(_sink(n, given) for n, given in enumerate(sinks))

    def _handles(self) -> tuple[str, ...]:
        """Return the handles that others release."""
        if self.acknowledge == DOWNSTREAM:
            return (DOWNSTREAM,)
        given = text_value(self.acknowledge) if isinstance(self.acknowledge, str) else self.acknowledge
        return () if given in (None, "job") else names_value("acknowledge", given, instead="'job' or 'downstream'")

    def _get_hook(self) -> SparkSubmitHook:
        """Return the provider's hook, with what this try's job needs added to it."""
        hook = super()._get_hook()
        job = self._job
        if job is None:
            return hook
        in_cluster = hook._connection["deploy_mode"] == "cluster"
        hook._application_args = [job.settings_file.name if in_cluster else str(job.settings_file)]
        hook._py_files = _listed(self.py_files, job.package_archive)
        if in_cluster:
            hook._files = _listed(self.files, job.settings_file)
        elif not hook._is_yarn and not hook._is_kubernetes:
            given = self.env_vars or {}
            hook._env_vars = {**local_environment({**os.environ, **given}), **given}
        process_log = hook._process_spark_submit_log
        hook._process_spark_submit_log = (  # type: ignore[method-assign]
            lambda itr: process_log(job.output.watched(itr))
        )
        return hook

    @property
    def _exit_code(self) -> int | None:
        process = self._hook._submit_sp if self._hook is not None else None
        return None if process is None else process.returncode

    def _abandon_job(self) -> None:
        """End the job's processes, then give its leases back; once, and whatever goes wrong on the way."""
        job = self._job
        if job is None or job.abandoned:
            return
        job.abandoned = True
        try:
            processes = job_processes(str(job.settings_file))
            try:
                if self._hook is not None:
                    super().on_kill()
            finally:
                end_processes(processes)
        except Exception:
            self.log.exception("the job may not have been stopped: owner=%s", job.settings.owner)
        self._give_leases_back(job)

    def _give_leases_back(self, job: _Job) -> None:
        owner = job.settings.owner
        try:
            # The coordinator acts for this task, not as the owner, whose leases are another process's.
            coordinator = job.connection.coordinator(job.settings.source, f"{owner}:task")
            with closing(coordinator.store):
                keys = coordinator.give_up_owner(owner)
        except Exception as error:
            self.log.warning(
                "leases could not be given back, they run out within %g seconds: source=%s owner=%s: %s",
                job.settings.ownership_timeout_seconds, job.settings.source, owner, error,
            )  # fmt: skip
        else:
            self.log.info(
                "%d leases given back: source=%s owner=%s partitions=%s",
                len(keys), job.settings.source, owner, ", ".join(keys) or "none",
            )  # fmt: skip


def _sink(number: int, given: Any) -> SinkSettings:
    what = f"field 'sinks', number {number + 1}"
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"{what}: expected a mapping; got {given!r}")
    if unknown := [name for name in given if name not in SINK_FIELDS]:
        raise ConfigurationError(f"{what}: unknown field {unknown[0]!r}; known are {', '.join(SINK_FIELDS)}")
    if missing := [name for name in SINK_FIELDS[:2] if text_value(given.get(name)) is None]:
        raise ConfigurationError(f"{what}: field {missing[0]!r} is missing")
    return SinkSettings(name=str(given["name"]), output=str(given["output_path"]), where=text_value(given.get("where")))


def _listed(given: str | None, added: Path) -> str:
    return f"{given},{added}" if given else str(added)
