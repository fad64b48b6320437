"""How a source is supervised, and how its jobs run: the sections `supervise` and `tuning` of a spec.

The names and defaults of `supervise` are those of Druid's Kinesis supervisor, in this package's spelling, where they
mean the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.settings import format_duration
from airflow_provider_coordination.spark.job_settings import RejectionSettings

MAX = "max"
SUM = "sum"
AVERAGE = "average"
LAG_AGGREGATES = (MAX, SUM, AVERAGE)
"""How the lags of shards are aggregated for scaling."""
MAX_JOBS = 1000
"""The maximum plausible number of jobs of one source."""
LONGEST = {
    "task_duration": timedelta(days=30),
    "completion_timeout": timedelta(days=7),
    "start_delay": timedelta(hours=1),
    "period": timedelta(hours=1),
    "auto_scale.scale_out_threshold": timedelta(days=31),
    "auto_scale.scale_in_threshold": timedelta(days=31),
    "auto_scale.lag_collection_interval": timedelta(hours=1),
    "auto_scale.lag_collection_range": timedelta(days=1),
    "auto_scale.scale_action_period": timedelta(days=1),
    "auto_scale.scale_action_start_delay": timedelta(days=1),
    "auto_scale.min_trigger_scale_action_frequency": timedelta(days=7),
}
"""The longest plausible durations: a longer one was given in milliseconds, as in Druid."""


@dataclass(frozen=True, kw_only=True)
class AutoScaleSettings:
    """How the number of jobs follows the lag.

    :param task_count_min: the minimum number of jobs; fewer if there are fewer partitions.
    :param task_count_max: the maximum number of jobs.
    :param task_count_start: the initial number of jobs; None for `task_count` of the spec.
    :param lag_collection_interval: how often a point is added to the window.
    :param lag_collection_range: the length of the window.
    :param scale_action_start_delay: the time from the supervisor's start to the first decision, in addition to the
        length of the window.
    :param scale_action_period: how often a decision is made.
    :param scale_out_threshold: a point at or above this lag counts for more jobs.
    :param scale_in_threshold: a point at or below this lag counts for fewer jobs.
    :param trigger_scale_out_fraction: the fraction of the window's points that must count for more jobs, 0 to 1.
    :param trigger_scale_in_fraction: the fraction of the window's points that must count for fewer jobs, 0 to 1.
    :param scale_out_step: the number of jobs added by a change.
    :param scale_in_step: the number of jobs removed by a change.
    :param min_trigger_scale_action_frequency: the shortest time between two changes.
    :param lag_aggregate: `"max"`, `"sum"` or `"average"` of the shards' lags.
    """

    task_count_min: int
    task_count_max: int
    task_count_start: int | None = None
    lag_collection_interval: timedelta = timedelta(seconds=30)
    lag_collection_range: timedelta = timedelta(minutes=10)
    scale_action_start_delay: timedelta = timedelta(minutes=5)
    scale_action_period: timedelta = timedelta(minutes=1)
    scale_out_threshold: timedelta = timedelta(seconds=6000)
    scale_in_threshold: timedelta = timedelta(seconds=1000)
    trigger_scale_out_fraction: float = 0.3
    trigger_scale_in_fraction: float = 0.9
    scale_out_step: int = 2
    scale_in_step: int = 1
    min_trigger_scale_action_frequency: timedelta = timedelta(minutes=10)
    lag_aggregate: str = MAX

    def check(self) -> None:
        """Check every value.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        if self.task_count_min < 1:
            raise _wrong("auto_scale.task_count_min", "must be at least 1", self.task_count_min)
        if self.task_count_max < self.task_count_min:
            raise _wrong(
                "auto_scale.task_count_max", f"must be at least 'task_count_min', {self.task_count_min}",
                self.task_count_max,
            )  # fmt: skip
        if self.task_count_start is not None and not (
            self.task_count_min <= self.task_count_start <= self.task_count_max
        ):
            raise _wrong(
                "auto_scale.task_count_start", f"must be from {self.task_count_min} to {self.task_count_max}",
                self.task_count_start,
            )  # fmt: skip
        if self.task_count_max > MAX_JOBS:
            raise _wrong("auto_scale.task_count_max", f"must be at most {MAX_JOBS}", self.task_count_max)
        for name in ("lag_collection_interval", "lag_collection_range", "scale_action_period"):
            if getattr(self, name) <= timedelta(0):
                raise _wrong(f"auto_scale.{name}", "must be positive", getattr(self, name))
        for name in ("scale_action_start_delay", "scale_in_threshold", "min_trigger_scale_action_frequency"):
            if getattr(self, name) < timedelta(0):
                raise _wrong(f"auto_scale.{name}", "must not be negative", getattr(self, name))
        if self.lag_collection_range < self.lag_collection_interval:
            raise _wrong(
                "auto_scale.lag_collection_range", "must be at least 'lag_collection_interval'",
                self.lag_collection_range,
            )  # fmt: skip
        _check_longest("auto_scale.", self)
        if self.scale_out_threshold < self.scale_in_threshold:
            raise _wrong(
                "auto_scale.scale_out_threshold", "must be at least 'scale_in_threshold'", self.scale_out_threshold
            )
        for name in ("trigger_scale_out_fraction", "trigger_scale_in_fraction"):
            if not 0 <= getattr(self, name) <= 1:
                raise _wrong(f"auto_scale.{name}", "must be from 0 to 1", getattr(self, name))
        for name in ("scale_out_step", "scale_in_step"):
            if getattr(self, name) < 1:
                raise _wrong(f"auto_scale.{name}", "must be at least 1", getattr(self, name))
        if self.lag_aggregate not in LAG_AGGREGATES:
            raise _wrong(
                "auto_scale.lag_aggregate", f"must be one of {', '.join(map(repr, LAG_AGGREGATES))}", self.lag_aggregate
            )


@dataclass(frozen=True, kw_only=True)
class SuperviseSettings:
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
    :param terminate_when_done: whether to terminate the supervisor once every partition is COMPLETED, for a bounded
        read.
    """

    task_count: int = 1
    task_duration: timedelta = timedelta(hours=1)
    start_delay: timedelta = timedelta(seconds=5)
    period: timedelta = timedelta(seconds=30)
    completion_timeout: timedelta = timedelta(minutes=30)
    stop_task_count: int | None = None
    event_time: str | None = None
    late_message_rejection_period: timedelta | None = None
    late_message_rejection_start: datetime | None = None
    early_message_rejection_period: timedelta | None = None
    auto_scale: AutoScaleSettings | None = None
    terminate_when_done: bool = False

    def check(self) -> None:
        """Check every value.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        if self.task_count < 1:
            raise _wrong("task_count", "must be at least 1; to run no jobs, suspend the supervisor", self.task_count)
        if self.task_count > MAX_JOBS:
            raise _wrong("task_count", f"must be at most {MAX_JOBS}; each job is a Spark application", self.task_count)
        if self.stop_task_count is not None and self.stop_task_count < 1:
            raise _wrong("stop_task_count", "must be at least 1, or omitted", self.stop_task_count)
        for name in ("task_duration", "completion_timeout"):
            if getattr(self, name) <= timedelta(0):
                raise _wrong(name, "must be positive", getattr(self, name))
        if self.start_delay < timedelta(0):
            raise _wrong("start_delay", "must not be negative", self.start_delay)
        if self.period < timedelta(seconds=1):
            raise _wrong("period", "must be at least a second", self.period)
        _check_longest("", self)
        for name in ("late_message_rejection_period", "early_message_rejection_period"):
            value = getattr(self, name)
            if value is not None and value < timedelta(0):
                raise _wrong(name, "must not be negative", value)
        if self.late_message_rejection_period is not None and self.late_message_rejection_start is not None:
            raise ConfigurationError(
                "supervise: fields 'late_message_rejection_period' and 'late_message_rejection_start' exclude each "
                "other: "
                "remove one of them"
            )
        if self.rejects and not self.event_time:
            raise ConfigurationError(
                "supervise: field 'event_time' is missing: name the column of 'schema' that decides whether records "
                "are late or early"
            )
        if self.auto_scale is not None:
            self.auto_scale.check()

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


def _check_longest(prefix: str, settings: SuperviseSettings | AutoScaleSettings) -> None:
    for each in fields(settings):
        longest = LONGEST.get(f"{prefix}{each.name}")
        value = getattr(settings, each.name)
        if longest is not None and value > longest:
            requirement = f"must be at most {format_duration(longest)}; give seconds, not milliseconds"
            raise _wrong(f"{prefix}{each.name}", requirement, value)


def _wrong(name: str, wanted: str, value: Any) -> ConfigurationError:
    shown = format_duration(value) if isinstance(value, timedelta) else repr(value)
    return ConfigurationError(f"supervise: field {name!r} {wanted}; got {shown}")


DEPLOY_MODES = ("client", "cluster")
MEMORY = re.compile(r"^\d+[kmgtpKMGTP][bB]?$")
"""A memory size in Spark's format."""


@dataclass(frozen=True, kw_only=True)
class SparkSettings:
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
    driver_memory: str | None = None
    executor_memory: str | None = None
    executor_cores: int | None = None
    num_executors: int | None = None
    total_executor_cores: int | None = None
    deploy_mode: str | None = None
    yarn_queue: str | None = None
    principal: str | None = None
    keytab: str | None = None
    proxy_user: str | None = None
    use_krb5ccache: bool | None = None
    env_vars: Mapping[str, str] | None = None
    properties_file: str | None = None
    spark_binary: str | None = None
    verbose: bool | None = None

    def check(self) -> None:
        """Check every value.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        for name in ("driver_memory", "executor_memory"):
            value = getattr(self, name)
            if value is not None and MEMORY.fullmatch(value) is None:
                raise ConfigurationError(
                    f"spec: field 'tuning.spark.{name}' must be a size with its unit, such as '2g'; got {value!r}"
                )
        for name in ("executor_cores", "num_executors", "total_executor_cores"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigurationError(f"spec: field 'tuning.spark.{name}' must be at least 1; got {value!r}")
        if self.deploy_mode is not None and self.deploy_mode not in DEPLOY_MODES:
            raise ConfigurationError(
                f"spec: field 'tuning.spark.deploy_mode' must be {' or '.join(map(repr, DEPLOY_MODES))}; got "
                f"{self.deploy_mode!r}"
            )

    def arguments(self) -> dict[str, Any]:
        """Return the settings that are not None, as arguments of `CoordinatedSparkSubmitOperator`."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        conf = {
            name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in self.conf.items()
        }
        return {**{name: value for name, value in values.items() if value is not None}, "conf": conf}


@dataclass(frozen=True, kw_only=True)
class TuningSettings:
    """How the jobs of a spec run.

    :param coordination_conn_id: the connection of type `coordination`.
    :param spark: how a job is submitted to Spark.
    :param start_timeout: how long a submitted job may take to start, for example in a cluster's queue.
    :param spark_archive: an archive of Spark's classes with which jobs start sooner.
    :param spark_ui_url: the URL of the Spark UI of an ended application, with `{application_id}`.
    :param job_log_url: the URL of the driver log of an application, with `{application_id}`.
    """

    coordination_conn_id: str = "coordination_default"
    spark: SparkSettings = field(default_factory=SparkSettings)
    start_timeout: timedelta = timedelta(hours=1)
    spark_archive: str | None = None
    spark_ui_url: str | None = None
    job_log_url: str | None = None

    def check(self) -> None:
        """Check every value.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        self.spark.check()
        if self.start_timeout <= timedelta(0):
            raise ConfigurationError(
                "spec: field 'tuning.start_timeout' must be positive; got "
                f"{self.start_timeout.total_seconds():g} seconds"
            )
