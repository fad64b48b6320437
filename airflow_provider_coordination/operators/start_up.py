"""Makes the JVMs of a job start sooner: options for the driver's JVM, and an archive of classes for all JVMs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_provider_coordination.operators.spark_hook import SubmissionTarget
from airflow_provider_coordination.spark.class_archive import JVM_OPTIONS, archive_option, archive_problem

log = logging.getLogger(__name__)

# A driver loads ten thousand classes, and the JVM's optimizing compiler compiles each method that was called five
# thousand times: that takes a quarter of the processor time until the first record. With ten times as many calls it
# still compiles the methods that a heavy query keeps calling. -XX:TieredStopAtLevel=1, which disables that compiler,
# starts no sooner and slows transforms down; -XX:+UseSerialGC saves next to nothing at the start, and pauses large
# heaps.
LATE_OPTIMIZATION = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
LAUNCHER_VARIABLE = "SPARK_LAUNCHER_OPTS"
"""The variable with options for the JVM that builds the driver's command, then ends."""
LAUNCHER_OPTIONS = "-XX:TieredStopAtLevel=1"
"""That JVM runs for a third of a second, most of which the optimizing compiler takes."""
DEFAULT_OPTIONS = "spark.{}.defaultJavaOptions"
"""Spark puts these options before those of `extraJavaOptions`, which belong to the user."""


def driver_options(environment: Mapping[str, str], archive: str | None) -> dict[str, str]:
    """Return the variables with JVM options for a driver on this machine; options that are set already go last and win.

    :param environment: the environment variables of the job.
    :param archive: the archive of classes; it is left out, with a warning, if this machine's JVM would not use it.
    :raises ConfigurationError: if the archive's path cannot be part of an option.
    """
    options = [LATE_OPTIMIZATION]
    if archive is not None:
        option = archive_option(archive)
        if (reason := archive_problem(Path(archive), environment)) is None:
            options.append(option)
        else:
            log.warning("field 'spark_archive': the job starts without the archive: %s", reason)
    return {
        variable: f"{options_text} {environment.get(variable, '')}".strip()
        for variable, options_text in ((JVM_OPTIONS, " ".join(options)), (LAUNCHER_VARIABLE, LAUNCHER_OPTIONS))
    }


def conf_with_archive(conf: Mapping[Any, Any] | None, archive: str | None, target: SubmissionTarget) -> dict[Any, Any]:
    """Return Spark's configuration with an archive of classes for the JVMs on other machines.

    A JVM on a machine without the file, or that cannot use it, starts without it.

    :param conf: the configuration of the task; its options go last and win.
    :raises ConfigurationError: if the archive's path cannot be part of an option.
    """
    conf = dict(conf or {})
    if archive is None:
        return conf
    for process in (() if target.is_on_this_machine else ("driver",)) + (() if target.is_local else ("executor",)):
        name = DEFAULT_OPTIONS.format(process)
        conf[name] = f"{archive_option(archive)} {conf.get(name, '')}".strip()
    return conf
