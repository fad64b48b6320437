"""The installed versions of Java, Python, Spark, pandas and pyarrow, and whether they are compatible.

Versions of packages are found without imports, since an incompatible Spark may fail on import. On a Spark cluster,
`pyspark` is a part of Spark's own folder, which no package manager knows.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from airflow_provider_coordination.coordination.errors import ConfigurationError

log = logging.getLogger(__name__)

PYTHONS = ((3, 11), (3, 15))
SPARKS = ((3, 5), (5,))
TESTED_SPARKS = ((3, 5), (4, 0), (4, 1), (4, 2), (4, 3))
TESTED_AIRFLOWS = ((3, 1), (3, 2), (3, 3))
"""What `make test-matrix` tests, each under its constraints."""
PANDAS = {(3, 5): (2, 0), (4, 0): (2, 0), (4, 1): (2, 2)}
"""The oldest pandas of each Spark, which later ones require too."""
NO_PANDAS = (3,)
"""The first pandas that no Spark supports."""
PYARROW = (18, 0)
PACKAGES = ("pyspark", "pyspark-client", "pandas", "pyarrow")

INSTALL_SPARK = "run `pip install 'airflow-provider-coordination[spark]'`"
OLDEST_JAVA = 17
JAVA_OF_OLD_SPARK = 11
"""The oldest Java of a Spark before 4."""
JAVA_TIMEOUT_SECONDS = 20
JAVA_REMEDY = f"install Java {OLDEST_JAVA} or newer, and name its folder in JAVA_HOME"
TOO_NEW_FOR_JAVA = re.compile(
    r"UnsupportedClassVersionError: org/apache/spark/.* \(class file version (\d+)\.\d+\).* up to (\d+)\.\d+"
)
"""The message of a Java that is too old for Spark's classes."""
CLASS_FILES_BEFORE_JAVA_1 = 44
"""Java 1 would have the version after this one, Java 17 has 61."""


@dataclass(frozen=True)
class Installation:
    """The software that a Spark job on this machine would use.

    :param python: the version of the job's Python; None if it is not this process's Python.
    :param packages: the versions of the installed packages among `PACKAGES`, by name.
    :param spark: the version of Spark; None if unknown.
    :param spark_home: the folder of Spark; None if there is none.
    :param is_own: whether that Spark is the `pyspark` of this Python's environment.
    :param imported: the version of the `pyspark` that this Python would import; None if there is none.
    """

    python: tuple[int, ...] | None
    packages: Mapping[str, str] = field(default_factory=dict)
    spark: str | None = None
    spark_home: str | None = None
    is_own: bool = False
    imported: str | None = None

    def __str__(self) -> str:
        python = ".".join(map(str, self.python or ()))
        found = {"Python": python, "Spark": self.spark, **self.packages}
        return ", ".join(f"{name} {version}" for name, version in found.items() if version)


@dataclass(frozen=True)
class Incompatibility:
    """One incompatibility.

    :param problem: the problem, with the versions.
    :param remedy: what to install.
    :param is_fatal: whether jobs are expected to fail.
    """

    problem: str
    remedy: str
    is_fatal: bool = True

    def __str__(self) -> str:
        return f"{self.problem}; {self.remedy}"


def find_installation(environment: Mapping[str, str] = os.environ, *, is_driver: bool = False) -> Installation:
    """Return the software that a Spark job with these environment variables would use.

    :param environment: the variables; `SPARK_HOME`, `PYSPARK_DRIVER_PYTHON`, `PYSPARK_PYTHON` and `PATH` are read.
    :param is_driver: whether this process is the job's driver, so that its importable `pyspark` is the job's.
    """
    own = installed_spark()
    home = environment.get("SPARK_HOME") or own or _spark_on_path(environment)
    is_this_python = is_driver or _is_same_python(_python_of_jobs(environment), Path(sys.executable))
    return Installation(
        python=tuple(sys.version_info[:3]) if is_this_python else None,
        packages=dict(_package_versions()) if is_this_python else {},
        spark=None if home is None else spark_version(Path(home)),
        spark_home=home,
        is_own=own is not None and home is not None and Path(home).resolve() == Path(own).resolve(),
        imported=_importable_pyspark() if is_driver else None,
    )


def installed_spark() -> str | None:
    """Return the folder of the Spark that is installed as a package; None if there is none.

    A `pyspark-client` alone does not count: it has no `spark-submit`.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.origin:
        return None
    home = Path(spec.origin).parent
    return str(home) if (home / "bin" / "spark-submit").is_file() else None


def spark_version(home: Path) -> str | None:
    """Return the version of the Spark in a folder; None if unknown."""
    for jar in sorted(home.glob("jars/spark-core_*.jar")):
        if match := re.match(r"spark-core_[\d.]+-(.+)\.jar$", jar.name):
            return match[1]
    release = home / "RELEASE"
    match = re.match(r"Spark (\S+)", release.read_text(errors="replace")) if release.is_file() else None
    return None if match is None else match[1]


def incompatibilities(installation: Installation) -> list[Incompatibility]:
    """Return the incompatibilities of an installation; an empty list if there are none."""
    return [*_of_python(installation), *_of_spark(installation), *_of_pair(installation), *_of_packages(installation)]


def untested_airflow(version: str) -> Incompatibility | None:
    """Return what is to be said of a version of Airflow; None if its minor version is tested."""
    if _release(version)[:2] in TESTED_AIRFLOWS:
        return None
    tested = ", ".join(_text(each) for each in TESTED_AIRFLOWS)
    return Incompatibility(f"Airflow {version} is not tested with this package", f"{tested} are", is_fatal=False)


def require_versions(installation: Installation) -> None:
    """Check that a Spark job can work; log versions that are merely untested.

    :raises ConfigurationError: naming the incompatibilities, what to install, and the installed versions.
    """
    misfits = incompatibilities(installation)
    for misfit in misfits:
        if not misfit.is_fatal:
            log.warning("%s", misfit)
    if fatal := [str(misfit) for misfit in misfits if misfit.is_fatal]:
        raise ConfigurationError(f"{'; '.join(fatal)} (installed: {installation})")


def _of_python(installation: Installation) -> Iterator[Incompatibility]:
    minimum, end = PYTHONS
    if installation.python is not None and not minimum <= installation.python[:2] < end:
        version = ".".join(map(str, installation.python))
        yield Incompatibility(f"Python {version} is not supported", "use Python 3.11, 3.12, 3.13 or 3.14")


def _of_spark(installation: Installation) -> Iterator[Incompatibility]:
    spark = installation.spark
    if spark is None:
        return
    minimum, end = SPARKS
    tested = ", ".join(_text(each) for each in TESTED_SPARKS)
    where = "" if installation.is_own else f" in {installation.spark_home}"
    if not minimum <= _release(spark) < end:
        yield Incompatibility(f"Spark {spark}{where} is not supported", f"use Spark 3.5 or 4, or {INSTALL_SPARK}")
    elif _release(spark)[:2] not in TESTED_SPARKS:
        yield Incompatibility(
            f"Spark {spark}{where} is not tested with this package", f"Spark {tested} are", is_fatal=False
        )


def _of_pair(installation: Installation) -> Iterator[Incompatibility]:
    spark, client = installation.packages.get("pyspark"), installation.packages.get("pyspark-client")
    if spark and client and spark != client:
        yield Incompatibility(
            f"pyspark {spark} and pyspark-client {client} own the same files, and the later one overwrote the other's",
            f"run `pip install 'pyspark=={spark}' 'pyspark-client=={spark}'`",
            is_fatal=installation.is_own,  # another Spark has its own pyspark, which jobs import first
        )
    elif installation.spark and installation.imported and not _is_same(installation.spark, installation.imported):
        yield Incompatibility(
            f"pyspark {installation.imported} does not fit Spark {installation.spark} in {installation.spark_home}",
            f"install pyspark {installation.spark}, or remove it and let spark-submit use Spark's own",
        )


def _of_packages(installation: Installation) -> Iterator[Incompatibility]:
    pandas, pyarrow = installation.packages.get("pandas"), installation.packages.get("pyarrow")
    if pandas and (misfit := unfit_pandas(pandas, installation.spark)):
        yield misfit
    if pyarrow and _release(pyarrow) < PYARROW:
        yield Incompatibility(f"pyarrow {pyarrow} is too old", f"run `pip install 'pyarrow>={_text(PYARROW)}'`")


def unfit_pandas(pandas: str, spark: str | None) -> Incompatibility | None:
    """Return what is wrong with a version of pandas; None if Spark supports it.

    :param spark: the version of Spark; None if unknown.
    """
    release = _release(spark or "")
    oldest = max((found for since, found in PANDAS.items() if since <= release), default=min(PANDAS.values()))
    if oldest <= _release(pandas) < NO_PANDAS:
        return None
    return Incompatibility(
        f"Spark{f' {spark}' if spark else ''} does not support pandas {pandas}",
        f"run `pip install 'pandas>={_text(oldest)},<{_text(NO_PANDAS)}'`",
    )


def _is_same(spark: str, pyspark: str) -> bool:
    # Vendors add a suffix: Spark 4.2.0-amzn-1 fits pyspark 4.2.0.
    return _release(spark)[:3] == _release(pyspark)[:3]


def _release(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version; none of an unknown one."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def _text(release: tuple[int, ...]) -> str:
    return ".".join(map(str, release))


def _python_of_jobs(environment: Mapping[str, str]) -> Path:
    given = environment.get("PYSPARK_DRIVER_PYTHON") or environment.get("PYSPARK_PYTHON") or sys.executable
    return Path(shutil.which(given, path=environment.get("PATH")) or given)


def _is_same_python(one: Path, other: Path) -> bool:
    """Return whether two programs are one Python with the same packages: environments may link to the same program."""
    return one.resolve() == other.resolve() and one.parent.resolve() == other.parent.resolve()


def _package_versions() -> Iterator[tuple[str, str]]:
    """Yield the installed packages; without the client of another folder, whose `pyspark` is not imported."""
    folders: dict[str, Path] = {}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            distribution = metadata.distribution(name)
            folders[name] = Path(str(distribution.locate_file("")))
            if name != "pyspark-client" or folders[name] == folders.get("pyspark", folders[name]):
                yield name, distribution.version


def _spark_on_path(environment: Mapping[str, str]) -> str | None:
    found = shutil.which("spark-submit", path=environment.get("PATH"))
    home = None if found is None else Path(found).resolve().parents[1]
    return str(home) if home is not None and (home / "jars").is_dir() else None


def _importable_pyspark() -> str | None:
    """Return the version of the `pyspark` that would be imported, which may be inside a zip archive."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.origin:
        return None
    try:
        text = spec.loader.get_data(str(Path(spec.origin).with_name("version.py")))  # type: ignore[union-attr]
    except (AttributeError, OSError):
        return None
    found = re.search(rb"__version__[^=]*=\s*['\"]([^'\"]+)", text)
    return None if found is None else found[1].decode()


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


def find_java(environment: Mapping[str, str], spark: str | None) -> Java:
    """Return the Java of jobs that are started with these environment variables; it is run for its version.

    :param environment: where `JAVA_HOME` and `PATH` are looked up.
    :param spark: the version of Spark; None if unknown.
    :raises ConfigurationError: if there is none, or Spark cannot run with it; the caller adds `JAVA_REMEDY`.
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
    is_old_spark = spark is not None and _release(spark) < (4,)
    if int(version[2]) < (JAVA_OF_OLD_SPARK if is_old_spark else OLDEST_JAVA):
        raise ConfigurationError(f"Java {version[1]} in {path} is too old for Spark {spark if is_old_spark else 4}")
    return Java(
        path, version[1], next((line for line in output.splitlines() if " VM " in line or "OpenJ9" in line), "")
    )


def refusal_of_java(output: str) -> str | None:
    """Return what to do if the output of spark-submit says that its Java is too old; None if it does not.

    Only the output shows which Java that was: Spark's own `spark-env.sh` may name another one than the environment.
    """
    found = TOO_NEW_FOR_JAVA.search(output)
    if found is None:
        return None
    needed, installed = (int(number) - CLASS_FILES_BEFORE_JAVA_1 for number in found.groups())
    return f"Java {installed} is too old for this Spark, which needs Java {needed}; {JAVA_REMEDY}"


def runtime_version(environment: Mapping[str, str]) -> str | None:
    """Return the exact version of the Java, such as `17.0.15+6`, without starting it; None if it is not known."""
    try:
        release = java_path(environment).resolve().parents[1] / "release"
        match = re.search(r'^JAVA_RUNTIME_VERSION="(.+)"$', release.read_text(errors="replace"), re.MULTILINE)
    except (ConfigurationError, OSError):
        return None
    return None if match is None else match[1]
