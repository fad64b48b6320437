"""Python, packages, Spark and Java: what jobs on this machine run with."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from airflow_provider_coordination import __version__
from airflow_provider_coordination.diagnosis.findings import Finding, error, ok, unchecked, warning
from airflow_provider_coordination.versions import INSTALL_SPARK, find_installation, misfits

OLDEST_JAVA = 17
JAVA_TIMEOUT_SECONDS = 20
JAVA_REMEDY = f"install Java {OLDEST_JAVA} or newer, and name its folder in JAVA_HOME"
OF_AIRFLOW = ("apache-airflow", "apache-airflow-providers-apache-spark", "apache-airflow-providers-amazon")


def software_findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what there is, and what does not fit together.

    :param environment: the variables with which jobs would be started.
    """
    yield from _package_findings()
    found = find_installation(environment)
    problems = misfits(found)
    if not problems:
        yield ok("versions", str(found))
    for misfit in problems:
        yield (error if misfit.is_fatal else warning)("versions", misfit.problem, misfit.remedy)
    if found.spark_home is None:
        yield warning("versions", "there is no Spark on this machine", f"set SPARK_HOME, or {INSTALL_SPARK}")
    yield _java_finding(environment)


def _package_findings() -> Iterator[Finding]:
    versions = {"airflow-provider-coordination": __version__}
    for name in OF_AIRFLOW:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield unchecked("versions", f"{name} is not installed here")
    yield ok("versions", ", ".join(f"{name} {version}" for name, version in versions.items()))


def _java_finding(environment: Mapping[str, str]) -> Finding:
    home = environment.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH", ""))
    if java is None or not Path(java).is_file():
        where = f"JAVA_HOME is {home!r}, where there is no bin/java" if home else "there is no java on PATH"
        return error("java", where, JAVA_REMEDY)
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=JAVA_TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        return error("java", f"{java} does not run: {type(failure).__name__}", JAVA_REMEDY)
    version = re.search(r'version "((\d+)[^"]*)"', done.stderr + done.stdout)
    if done.returncode != 0 or version is None:
        return error("java", f"{java} does not say its version", JAVA_REMEDY)
    if int(version[2]) < OLDEST_JAVA:
        return error("java", f"Java {version[1]} in {java} is too old for Spark 4", JAVA_REMEDY)
    return ok("java", f"Java {version[1]} in {java}")
