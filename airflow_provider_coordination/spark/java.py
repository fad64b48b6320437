"""The Java that Spark jobs on this machine run with."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from airflow_provider_coordination.coordination.errors import ConfigurationError

OLDEST_JAVA = 17
JAVA_TIMEOUT_SECONDS = 20
JAVA_REMEDY = f"install Java {OLDEST_JAVA} or newer, and name its folder in JAVA_HOME"


@dataclass(frozen=True)
class Java:
    """An installed Java.

    :param path: its program.
    :param version: such as `17.0.15`.
    :param machine: the name of its virtual machine.
    """

    path: Path
    version: str
    machine: str


def java_path(environment: Mapping[str, str]) -> Path:
    """Return the program that starts a JVM, found as Spark's scripts do.

    :param environment: where `JAVA_HOME` and `PATH` are looked up.
    :raises ConfigurationError: if there is none; the caller adds `JAVA_REMEDY`.
    """
    home = environment.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH", ""))
    if java is None or not Path(java).is_file():
        where = f"JAVA_HOME is {home!r}, where there is no bin/java" if home else "there is no java on PATH"
        raise ConfigurationError(where)
    return Path(java)


def find_java(environment: Mapping[str, str]) -> Java:
    """Return the Java of jobs that are started with these environment variables; it is run for its version.

    :raises ConfigurationError: if there is none, or Spark 4 cannot run with it; the caller adds `JAVA_REMEDY`.
    """
    path = java_path(environment)
    try:
        done = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=JAVA_TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise ConfigurationError(f"{path} does not run: {type(failure).__name__}") from None
    output = done.stderr + done.stdout
    version = re.search(r'version "((\d+)[^"]*)"', output)
    if done.returncode != 0 or version is None:
        raise ConfigurationError(f"{path} does not print its version")
    if int(version[2]) < OLDEST_JAVA:
        raise ConfigurationError(f"Java {version[1]} in {path} is too old for Spark 4")
    return Java(
        path, version[1], next((line for line in output.splitlines() if " VM " in line or "OpenJ9" in line), "")
    )


def runtime_version(environment: Mapping[str, str]) -> str | None:
    """Return the exact version of the Java, such as `17.0.15+6`, without starting it; None if it is not known."""
    try:
        release = java_path(environment).resolve().parents[1] / "release"
        match = re.search(r'^JAVA_RUNTIME_VERSION="(.+)"$', release.read_text(errors="replace"), re.MULTILINE)
    except (ConfigurationError, OSError):
        return None
    return None if match is None else match[1]
