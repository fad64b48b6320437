"""How the jobs of a spec run: the section `tuning`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError

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
