"""Checks of the software on this machine: Python, packages, Spark and Java."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import metadata

from airflow_provider_coordination import __version__
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.diagnosis.findings import Finding, error, ok, unchecked, warning
from airflow_provider_coordination.spark.java import JAVA_REMEDY, find_java
from airflow_provider_coordination.versions import INSTALL_SPARK, find_installation, incompatibilities

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
