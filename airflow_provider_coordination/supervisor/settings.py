"""How a source is supervised, and how its jobs run: the sections `supervise` and `tuning` of a spec.

The names and defaults of `supervise` are those of Druid's Kinesis supervisor, in this package's spelling, where they
mean the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any

from airflow_provider_coordination.coordination.groups import GROUP_NAME, GROUP_NAME_WORDS
from airflow_provider_coordination.coordination.json_values import Stored
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.field_hints import Limits, format_duration
from airflow_provider_coordination.settings import Described, FieldError
from airflow_provider_coordination.spark.job_settings import RejectionSettings

MAX = "max"
SUM = "sum"
AVERAGE = "average"
LAG_AGGREGATES = (MAX, SUM, AVERAGE)
"""How the lags of shards are aggregated for scaling."""
MAX_JOBS = 1000
"""The maximum plausible number of jobs of one source."""
DEPLOY_MODES = ("client", "cluster")
MEMORY = r"^\d+[kmgtpKMGTP][bB]?$"
"""A memory size in Spark's format."""
NO_TIME = timedelta(0)
IN_A_ROW = 3
"""How many consecutive failures make a supervisor unhealthy, and how many successes healthy again, by default."""
EVENTS_KEPT = 10
MOST_EVENTS_KEPT = 30
"""Together with the rest of the state, this many errors with long messages stay below the limit of an item."""


def _up_to(longest: timedelta, *, minimum: timedelta | None = None) -> Limits:
    """Return the limits of a duration: a longer one was given in milliseconds, as in Druid.

    :param minimum: the shortest duration; None for any that is positive.
    """
    least = "positive" if minimum is None else f"at least {format_duration(minimum)}"
    return Limits(
        above=NO_TIME if minimum is None else None,
        minimum=minimum,
        maximum=longest,
        words=f"{least} and at most {format_duration(longest)}; give seconds, not milliseconds",
    )


Steps = Annotated[int, Limits(minimum=1)]
Threshold = Annotated[int, Limits(minimum=1, maximum=1000)]
Fraction = Annotated[float, Limits(minimum=0, maximum=1)]
MemorySize = Annotated[str | None, Limits(pattern=MEMORY, words="a size with its unit, such as '2g'")]
SomeCores = Annotated[int | None, Limits(minimum=1)]
GroupName = Annotated[str | None, Limits(pattern=GROUP_NAME, words=GROUP_NAME_WORDS)]
NotNegative = Annotated[timedelta | None, Limits(minimum=NO_TIME)]


@dataclass(frozen=True, kw_only=True)
class AutoScaleSettings(Described):
    """How the number of jobs follows the lag, and the time that the unread records take to be read.

    :param task_count_min: the minimum number of jobs; fewer if there are fewer partitions.
    :param task_count_max: the maximum number of jobs.
    :param task_count_start: the initial number of jobs; None for `task_count` of the spec.
    :param lag_collection_interval: how often a point is added to the window.
    :param lag_collection_range: the length of the window.
    :param scale_action_start_delay: the time from the supervisor's start to the first decision, in addition to the
        length of the window.
    :param scale_action_period: how often a decision is made.
    :param scale_out_threshold: a point counts for more jobs if its unread records take this long to be read at the
        window's pace. If the pace is unknown, its lag counts.
    :param scale_in_threshold: a point counts for fewer jobs if its lag, and the time that its unread records take, are
        at or below this.
    :param trigger_scale_out_fraction: the fraction of the window's points that must count for more jobs, 0 to 1.
    :param trigger_scale_in_fraction: the fraction of the window's points that must count for fewer jobs, 0 to 1.
    :param scale_out_step: the number of jobs added by a change.
    :param scale_in_step: the number of jobs removed by a change.
    :param min_trigger_scale_action_frequency: the shortest time between two changes.
    :param lag_aggregate: `"max"`, `"sum"` or `"average"` of the shards' lags.
    """

    task_count_min: Annotated[
        int,
        Limits(minimum=1, words="at least 1; to run no job while nothing arrives, set 'idle_after' of 'supervise'"),
    ]
    task_count_max: Annotated[int, Limits(minimum=1, maximum=MAX_JOBS)]
    task_count_start: int | None = None
    lag_collection_interval: Annotated[timedelta, _up_to(timedelta(hours=1))] = timedelta(seconds=30)
    lag_collection_range: Annotated[timedelta, _up_to(timedelta(days=1))] = timedelta(minutes=10)
    scale_action_start_delay: Annotated[timedelta, _up_to(timedelta(days=1), minimum=NO_TIME)] = timedelta(minutes=5)
    scale_action_period: Annotated[timedelta, _up_to(timedelta(days=1))] = timedelta(minutes=1)
    scale_out_threshold: Annotated[timedelta, _up_to(timedelta(days=31), minimum=NO_TIME)] = timedelta(seconds=6000)
    scale_in_threshold: Annotated[timedelta, _up_to(timedelta(days=31), minimum=NO_TIME)] = timedelta(seconds=1000)
    trigger_scale_out_fraction: Fraction = 0.3
    trigger_scale_in_fraction: Fraction = 0.9
    scale_out_step: Steps = 2
    scale_in_step: Steps = 1
    min_trigger_scale_action_frequency: Annotated[timedelta, _up_to(timedelta(days=7), minimum=NO_TIME)] = timedelta(
        minutes=10
    )
    lag_aggregate: Annotated[str, Limits(one_of=LAG_AGGREGATES)] = MAX

    @override
    def check_together(self) -> None:
        least, most, start = self.task_count_min, self.task_count_max, self.task_count_start
        if most < least:
            raise self.invalid("task_count_max", f"must be at least 'task_count_min', {least}")
        if start is not None and not least <= start <= most:
            raise self.invalid("task_count_start", f"must be from {least} to {most}")
        if self.lag_collection_range < self.lag_collection_interval:
            raise self.invalid("lag_collection_range", "must be at least 'lag_collection_interval'")
        if self.scale_out_threshold < self.scale_in_threshold:
            raise self.invalid("scale_out_threshold", "must be at least 'scale_in_threshold'")


@dataclass(frozen=True, kw_only=True)
class HealthRules(Stored):
    """When results change the state of a supervisor, as its spec says.

    :param unhealthy_after: the number of consecutive failed runs that makes it unhealthy.
    :param healthy_after: the number of consecutive successful runs that makes it healthy again.
    :param jobs_unhealthy_after: the number of consecutive failed jobs that makes it unhealthy.
    :param jobs_healthy_after: the number of consecutive successful jobs that makes it healthy again.
    :param errors_kept: how many of the latest errors are kept.
    """

    unhealthy_after: int = IN_A_ROW
    healthy_after: int = IN_A_ROW
    jobs_unhealthy_after: int = IN_A_ROW
    jobs_healthy_after: int = IN_A_ROW
    errors_kept: int = EVENTS_KEPT


@dataclass(frozen=True, kw_only=True)
class SuperviseSettings(Described):
    """How a source is supervised.

    :param task_count: the number of jobs that read the source at the same time; fewer if there are fewer partitions.
    :param task_duration: how long a job reads before another job takes over.
    :param start_delay: the time from the supervisor's start to the start of the first job.
    :param period: the longest time between two polls of the source.
    :param completion_timeout: how long a stopping job may take to deliver what it has read. After that it is ended by
        force, and its leases are released.
    :param stop_task_count: the maximum number of jobs that stop at the same time because of `task_duration`; None for
        all of them.
    :param event_time: the column of `schema` that decides whether records are late or early.
    :param late_message_rejection_period: reject records older than the job's start minus this duration.
    :param late_message_rejection_start: reject records older than this instant (aware).
    :param early_message_rejection_period: reject records later than the job's planned end plus this duration.
    :param auto_scale: how the number of jobs follows the lag; None for a fixed number.
    :param idle_after: how long nothing must arrive until no job runs; a job starts once a record arrives. None to keep
        jobs running.
    :param unhealthiness_threshold: how many polls in a row must fail to make the supervisor unhealthy.
    :param healthiness_threshold: how many polls in a row must succeed to make it healthy again.
    :param task_unhealthiness_threshold: how many jobs in a row must fail to make it unhealthy.
    :param task_healthiness_threshold: how many jobs in a row must succeed to make it healthy again.
    :param max_stored_exception_events: how many of the latest errors its status keeps.
    :param terminate_when_done: whether to terminate the supervisor once every partition is COMPLETED, for a bounded
        read.
    """

    task_count: Annotated[
        int,
        Limits(
            minimum=1,
            maximum=MAX_JOBS,
            words=f"from 1 to {MAX_JOBS}, as each job is a Spark application; to run no jobs, suspend the supervisor",
        ),
    ] = 1
    task_duration: Annotated[timedelta, _up_to(timedelta(days=30))] = timedelta(hours=1)
    start_delay: Annotated[timedelta, _up_to(timedelta(hours=1), minimum=NO_TIME)] = timedelta(seconds=5)
    period: Annotated[timedelta, _up_to(timedelta(hours=1), minimum=timedelta(seconds=1))] = timedelta(seconds=30)
    completion_timeout: Annotated[timedelta, _up_to(timedelta(days=7))] = timedelta(minutes=30)
    stop_task_count: Annotated[int | None, Limits(minimum=1, words="at least 1, or omitted")] = None
    event_time: str | None = None
    late_message_rejection_period: NotNegative = None
    late_message_rejection_start: datetime | None = None
    early_message_rejection_period: NotNegative = None
    auto_scale: AutoScaleSettings | None = None
    idle_after: Annotated[timedelta | None, _up_to(timedelta(days=7))] = None
    unhealthiness_threshold: Threshold = IN_A_ROW
    healthiness_threshold: Threshold = IN_A_ROW
    task_unhealthiness_threshold: Threshold = IN_A_ROW
    task_healthiness_threshold: Threshold = IN_A_ROW
    max_stored_exception_events: Annotated[int, Limits(minimum=1, maximum=MOST_EVENTS_KEPT)] = EVENTS_KEPT
    terminate_when_done: bool = False

    @override
    def check_together(self) -> None:
        if self.late_message_rejection_period is not None and self.late_message_rejection_start is not None:
            raise self.invalid(
                "late_message_rejection_start", "excludes 'late_message_rejection_period': remove one of them"
            )
        if self.rejects and not self.event_time:
            problem = "is missing: name the column of 'schema' that decides whether records are late or early"
            raise FieldError(self.title, "event_time", problem)
        if self.idle_after is not None and self.idle_after < self.lag_interval:
            raise self.invalid(
                "idle_after", f"must be at least {format_duration(self.lag_interval)}: the lag is read this often"
            )

        scaling = self.auto_scale
        if scaling is not None and scaling.lag_collection_range > self.task_duration:
            raise self.invalid(
                "task_duration",
                "must be at least 'lag_collection_range' of 'auto_scale', because a handover empties the window",
            )

    @property
    def lag_interval(self) -> timedelta:
        """How often the lag is read."""
        return self.period if self.auto_scale is None else self.auto_scale.lag_collection_interval

    @property
    def health_rules(self) -> HealthRules:
        """When results change the state of the supervisor."""
        return HealthRules(
            unhealthy_after=self.unhealthiness_threshold,
            healthy_after=self.healthiness_threshold,
            jobs_unhealthy_after=self.task_unhealthiness_threshold,
            jobs_healthy_after=self.task_healthiness_threshold,
            errors_kept=self.max_stored_exception_events,
        )

    @property
    def rejects(self) -> bool:
        """Whether records may be rejected because of their event time."""
        bounds = (
            self.late_message_rejection_period, self.late_message_rejection_start, self.early_message_rejection_period,
        )  # fmt: skip
        return any(bound is not None for bound in bounds)

    def rejection(self, planned_at: datetime) -> RejectionSettings:
        """Return which records a job rejects.

        :param planned_at: when the job was planned (aware).
        """
        if not self.rejects:
            return RejectionSettings()
        late, early = self.late_message_rejection_period, self.early_message_rejection_period
        return RejectionSettings(
            event_time=self.event_time,
            earliest=self.late_message_rejection_start if late is None else planned_at - late,
            latest=None if early is None else planned_at + self.task_duration + early,
        )


@dataclass(frozen=True, kw_only=True)
class SparkSettings(Described):
    """How a job is submitted to Spark: the arguments of the submitting operator, by name.

    :param conn_id: the Spark connection.
    :param kubernetes_conn_id: the Kubernetes connection for drivers on Kubernetes; `kubernetes_default` if omitted.
    :param conf: Spark properties, by name.
    :param name: the name of the application.
    :param jars: JAR files, separated by commas.
    :param packages: Maven coordinates, separated by commas.
    :param exclude_packages: Maven coordinates to exclude, separated by commas.
    :param repositories: additional Maven repositories, separated by commas.
    :param driver_class_path: additional entries of the driver's class path.
    :param py_files: Python modules and archives, separated by commas.
    :param files: files placed in the working directory of every process.
    :param archives: archives unpacked in the working directory of every process.
    :param driver_memory: memory of the driver, such as `2g`.
    :param executor_memory: memory of an executor, such as `2g`.
    :param executor_cores: cores of an executor.
    :param num_executors: the number of executors.
    :param total_executor_cores: cores of all executors together.
    :param deploy_mode: `"client"` or `"cluster"`; by default the connection's.
    :param yarn_queue: the YARN queue.
    :param principal: the Kerberos principal.
    :param keytab: the keytab of the principal.
    :param proxy_user: the user to impersonate.
    :param use_krb5ccache: whether to use the Kerberos ticket cache instead of a keytab.
    :param env_vars: environment variables of the driver.
    :param properties_file: a file of Spark properties.
    :param spark_binary: the command that submits the job.
    :param verbose: whether the command prints debug output.
    """

    conn_id: str = "spark_default"
    kubernetes_conn_id: str | None = None
    conf: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    name: str | None = None
    jars: str | None = None
    packages: str | None = None
    exclude_packages: str | None = None
    repositories: str | None = None
    driver_class_path: str | None = None
    py_files: str | None = None
    files: str | None = None
    archives: str | None = None
    driver_memory: MemorySize = None
    executor_memory: MemorySize = None
    executor_cores: SomeCores = None
    num_executors: SomeCores = None
    total_executor_cores: SomeCores = None
    deploy_mode: Annotated[str | None, Limits(one_of=DEPLOY_MODES)] = None
    yarn_queue: str | None = None
    principal: str | None = None
    keytab: str | None = None
    proxy_user: str | None = None
    use_krb5ccache: bool | None = None
    env_vars: Mapping[str, str] | None = None
    properties_file: str | None = None
    spark_binary: str | None = None
    verbose: bool | None = None

    def arguments(self) -> dict[str, Any]:
        """Return the settings that are not None, as arguments of `CoordinatedSparkSubmitOperator`."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        conf = {
            name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in self.conf.items()
        }
        return {**{name: value for name, value in values.items() if value is not None}, "conf": conf}


@dataclass(frozen=True, kw_only=True)
class TuningSettings(Described):
    """How the jobs of a spec run.

    :param coordination_conn_id: the connection of type `coordination`.
    :param spark: how a job is submitted to Spark.
    :param group: the name of a group of sources whose jobs run in one Spark application; by default each job has its
        own application. All members must have the same `spark`, `spark_archive` and `coordination_conn_id`.
    :param start_timeout: how long a submitted job may take to start, for example in a cluster's queue.
    :param spark_archive: an archive of Spark's classes with which jobs start sooner.
    :param spark_ui_url: the URL of the Spark UI of an ended application, with `{application_id}`.
    :param job_log_url: the URL of the driver log of an application, with `{application_id}`.
    """

    coordination_conn_id: str = "coordination_default"
    spark: SparkSettings = field(default_factory=SparkSettings)
    group: GroupName = None
    start_timeout: Annotated[timedelta, Limits(above=NO_TIME)] = timedelta(hours=1)
    spark_archive: str | None = None
    spark_ui_url: str | None = None
    job_log_url: str | None = None
