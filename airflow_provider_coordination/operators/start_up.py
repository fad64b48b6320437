"""What lets the JVM of a job begin sooner: options for the driver's, and an archive of classes for all."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_provider_coordination.operators.spark_hook import SubmissionTarget
from airflow_provider_coordination.spark.class_archive import JVM_OPTIONS, archive_option, misfit

log = logging.getLogger(__name__)

# A driver loads ten thousand classes, and the JVM's optimizing compiler takes hold of each method that was called five
# thousand times: that is a quarter of the processor time until the first record. With ten times as many calls it still
# compiles whatever a heavy query keeps calling. -XX:TieredStopAtLevel=1, which does without it, begins no sooner and
# slows transforms down; -XX:+UseSerialGC saves next to nothing at the start, and pauses large heaps.
LATE_OPTIMIZATION = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
LAUNCHER_VARIABLE = "SPARK_LAUNCHER_OPTS"
"""The variable with options of the JVM that puts together the command of the driver, and ends."""
LAUNCHER_OPTIONS = "-XX:TieredStopAtLevel=1"
"""It lives for a third of a second, most of which the optimizing compiler takes."""
DEFAULT_OPTIONS = "spark.{}.defaultJavaOptions"
"""Spark puts these options before those of `extraJavaOptions`, which are left to the user."""


def driver_options(environment: Mapping[str, str], archive: str | None) -> dict[str, str]:
    """Return the variables with options for a driver on this machine; those that are set already go last, and win.

    :param environment: the variables with which the job is started.
    :param archive: of classes; one that this machine's JVM would not take is left out, with a warning.
    :raises ConfigurationError: if its path cannot be part of an option.
    """
    options = [LATE_OPTIMIZATION]
    if archive is not None:
        option = archive_option(archive)
        if (reason := misfit(Path(archive), environment)) is None:
            options.append(option)
        else:
            log.warning("field 'spark_archive': the job starts without the archive: %s", reason)
    return {
        variable: f"{given} {environment.get(variable, '')}".strip()
        for variable, given in ((JVM_OPTIONS, " ".join(options)), (LAUNCHER_VARIABLE, LAUNCHER_OPTIONS))
    }


def conf_with_archive(conf: Mapping[Any, Any] | None, archive: str | None, target: SubmissionTarget) -> dict[Any, Any]:
    """Return Spark's configuration with an archive of classes for the JVMs that are not started here.

    A JVM on whose machine there is no such file, or that cannot use it, starts without it.

    :param conf: what the task configures; its options go last, and win.
    :raises ConfigurationError: if its path cannot be part of an option.
    """
    conf = dict(conf or {})
    if archive is None:
        return conf
    for process in (() if target.is_here else ("driver",)) + (() if target.is_local else ("executor",)):
        name = DEFAULT_OPTIONS.format(process)
        conf[name] = f"{archive_option(archive)} {conf.get(name, '')}".strip()
    return conf
