"""Checks of `airflow-coordination doctor`: connections, software, the store and the folder of an output."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from importlib import metadata
from pathlib import Path

from airflow_provider_coordination import __version__
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.diagnosis.findings import Finding, error, ok, unchecked, warning
from airflow_provider_coordination.diagnosis.permissions import permission_findings
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.java import JAVA_REMEDY, find_java
from airflow_provider_coordination.stores import StoreSettings, open_store
from airflow_provider_coordination.stores.redaction import without_likely_secrets, without_secrets
from airflow_provider_coordination.stores.report import ReportingStore, StoreReport
from airflow_provider_coordination.versions import INSTALL_SPARK, find_installation, incompatibilities


def spark_finding(conn_id: str) -> Finding:
    """Return the finding for the connection that submits jobs."""
    name = f"connection {conn_id!r}"
    try:
        from airflow_provider_coordination.hooks.connections import airflow_connection

        connection = airflow_connection(conn_id, name, "create it with type 'spark'")
    except ConfigurationError as failure:
        return warning("connection", str(failure), "without it, jobs are submitted to YARN")
    except Exception as failure:  # Airflow or its database is missing; the text of the error may hold a secret
        return unchecked("connection", f"{name} cannot be looked up: {type(failure).__name__}")
    port = f":{connection.port}" if connection.port else ""
    mode = connection.extra_dejson.get("deploy-mode") or "client"
    return ok("connection", f"{name}: {connection.host or connection.conn_type}{port}, deploy mode {mode}")


AIRFLOW_PACKAGES = ("apache-airflow", "apache-airflow-providers-apache-spark", "apache-airflow-providers-amazon")


def software_findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the versions that were found, and those that do not match.

    :param environment: the environment variables with which jobs are started.
    """
    yield from _package_findings()
    installation = find_installation(environment)
    problems = incompatibilities(installation)
    if not problems:
        yield ok("versions", str(installation))
    for misfit in problems:
        yield (error if misfit.is_fatal else warning)("versions", misfit.problem, misfit.remedy)
    if installation.spark_home is None:
        yield warning("versions", "Spark is not installed on this machine", f"set SPARK_HOME, or {INSTALL_SPARK}")
    yield _java_finding(environment)


def _package_findings() -> Iterator[Finding]:
    versions = {"airflow-provider-coordination": __version__}
    for name in AIRFLOW_PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield unchecked("versions", f"{name} is not installed here")
    yield ok("versions", ", ".join(f"{name} {version}" for name, version in versions.items()))


def _java_finding(environment: Mapping[str, str]) -> Finding:
    try:
        java = find_java(environment)
    except ConfigurationError as failure:
        return error("java", str(failure), JAVA_REMEDY)
    return ok("java", f"Java {java.version} in {java.path}")


def output_findings(path: str, access: Access = DEFAULT_ACCESS) -> Iterator[Finding]:
    """Yield whether a path can be written. The files of the check are deleted.

    :param path: a path or URI.
    :param access: the AWS settings, for a path on S3.
    """
    from airflow_provider_coordination.spark.filesystems import absolute
    from airflow_provider_coordination.spark.storage import (
        PROBES,
        delete_file,
        join,
        new_probe,
        publish,
        read_text,
        remove_if_empty,
        write_text,
    )

    root = absolute(path)
    existed = "://" in root or Path(root).exists()
    name = secrets.token_hex(8)
    probe, renamed = new_probe(root), new_probe(root)
    steps: tuple[tuple[str, Callable[[], object]], ...] = (
        ("write", lambda: write_text(probe, name, access)),
        ("read", lambda: _same(read_text(probe, access), name)),
        ("rename", lambda: publish(probe, renamed, access=access)),
        ("delete", lambda: delete_file(renamed, access)),
    )
    try:
        for step, run in steps:
            try:
                run()
            except (CoordinationError, OSError, ValueError) as failure:
                message = without_likely_secrets(" ".join(str(failure).split()))
                remedy = "grant write access to the user that runs Spark's driver, or use another path"
                yield error("output", f"{path}: cannot {step} a file: {message}", remedy)
                return
    finally:
        for left in (probe, renamed):
            with suppress(CoordinationError, OSError, ValueError):
                delete_file(left, access)
        with suppress(OSError, CoordinationError, ValueError):
            remove_if_empty(join(root, PROBES), access)
        if not existed:
            with suppress(OSError):
                Path(root).rmdir()
    yield ok("output", f"{path}: a file can be written, read, renamed and deleted from this machine")


def _same(read: str, written: str) -> None:
    if read != written:
        raise OSError("its content differs from what was written")


RETRY_DEADLINE_SECONDS = 5.0
SLOW_ROUND_TRIP = timedelta(milliseconds=100)
CLOCK_REMEDY = "synchronize the clocks of this machine and of the store with NTP"


def store_findings(settings: StoreSettings, margin: timedelta, now: Callable[[], datetime]) -> Iterator[Finding]:
    """Yield the findings for a store. Nothing in it is created or changed.

    :param margin: by how much clocks may differ.
    :param now: the clock of this machine.
    """
    try:
        opened = open_store(replace(settings, history_days=0), retry_deadline_seconds=RETRY_DEADLINE_SECONDS)
        with closing(opened):
            if not isinstance(opened, ReportingStore):
                yield unchecked("store", f"stores of kind {settings.kind!r} do not report their status")
                return
            yield from _report_findings(opened.report(now), margin)
            if (needed := opened.permissions()) is not None:
                yield from permission_findings(*needed)
    except CoordinationError as failure:
        yield error("store", without_secrets(str(failure), settings))
    except Exception as failure:  # the text of an unexpected error may hold a secret
        yield error("store", f"the store failed with {type(failure).__name__}", "run the command again with --verbose")


def _report_findings(report: StoreReport, margin: timedelta) -> Iterator[Finding]:
    took = report.round_trip / timedelta(milliseconds=1)
    message = f"{report.name} responded in {took:.1f} ms"
    if report.round_trip > SLOW_ROUND_TRIP:
        yield warning("store", message, "run the store closer to Airflow and Spark: each round makes several requests")
    else:
        yield ok("store", message)
    if report.schema == 0:
        yield warning("store", "its table does not exist yet", "the first task creates it, or run init-store")
    elif report.schema < report.newest_schema:
        yield error(
            "store",
            f"its table has schema version {report.schema}, but this package needs {report.newest_schema}",
            "run init-store with a role that may alter tables",
        )
    else:
        yield ok("store", f"its table has schema version {report.schema}")
    yield _clock_finding(report.clock_difference, margin)


def _clock_finding(difference: timedelta | None, margin: timedelta) -> Finding:
    if difference is None:
        return unchecked("clock", "the store does not report its time")
    seconds = difference.total_seconds()
    text = f"the clock of this machine is {abs(seconds):.1f} s {'behind' if seconds > 0 else 'ahead of'} the store's"
    if abs(difference) > margin:
        return error("clock", f"{text}; clocks may differ by {margin.total_seconds():g} s", CLOCK_REMEDY)
    if abs(difference) > margin / 2:
        return warning("clock", f"{text}; clocks may differ by {margin.total_seconds():g} s", CLOCK_REMEDY)
    return ok("clock", f"{abs(seconds):.1f} s between the clocks of this machine and of the store")
