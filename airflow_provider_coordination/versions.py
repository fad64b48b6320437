"""Which Python, Spark, pandas and pyarrow there are, and whether they work together.

Nothing is imported to find out, as a Spark that does not fit may fail in its imports. On a Spark cluster `pyspark` is a
part of Spark's own folder, which no package manager knows.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from airflow_provider_coordination.coordination.errors import ConfigurationError

log = logging.getLogger(__name__)

PYTHONS = ((3, 11), (3, 14))
SPARKS = ((4, 0), (5,))
TESTED_SPARK = "4.2.0"
PANDAS = ((2, 2), (3,))
PYARROW = (18, 0)
PACKAGES = ("pyspark", "pyspark-client", "pandas", "pyarrow")

INSTALL_SPARK = "run `pip install 'airflow-provider-coordination[spark]'`"
INSTALL_PAIR = f"run `pip install 'pyspark=={TESTED_SPARK}' 'pyspark-client=={TESTED_SPARK}'`"


@dataclass(frozen=True)
class Installation:
    """What a Spark job on this machine would run with.

    :param python: the version of its Python; None if it is another one than this process's.
    :param packages: the versions of the packages in `PACKAGES` that its Python has, by name.
    :param spark: the version of Spark; None if it is not known.
    :param spark_home: Spark's folder; None if there is none.
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
class Misfit:
    """One thing that does not fit.

    :param problem: what it is, with its versions.
    :param remedy: what to install.
    :param is_fatal: whether jobs cannot be expected to work.
    """

    problem: str
    remedy: str
    is_fatal: bool = True

    def __str__(self) -> str:
        return f"{self.problem}; {self.remedy}"


def find_installation(environment: Mapping[str, str] = os.environ, *, is_driver: bool = False) -> Installation:
    """Return what a Spark job would run with that is started with these environment variables.

    :param environment: where `SPARK_HOME`, `PYSPARK_DRIVER_PYTHON`, `PYSPARK_PYTHON` and `PATH` are looked up.
    :param is_driver: whether this process is the job's driver, so that the `pyspark` that it can import is the job's.
    """
    own = installed_spark()
    home = environment.get("SPARK_HOME") or own or _spark_on_path(environment)
    is_this_python = is_driver or _python_of_jobs(environment).resolve() == Path(sys.executable).resolve()
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

    A `pyspark-client` alone is none: it has no `spark-submit`.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.origin:
        return None
    home = Path(spec.origin).parent
    return str(home) if (home / "bin" / "spark-submit").is_file() else None


def spark_version(home: Path) -> str | None:
    """Return the version of the Spark in a folder; None if it is not known."""
    for jar in sorted(home.glob("jars/spark-core_*.jar")):
        if found := re.match(r"spark-core_[\d.]+-(.+)\.jar$", jar.name):
            return found[1]
    release = home / "RELEASE"
    found = re.match(r"Spark (\S+)", release.read_text(errors="replace")) if release.is_file() else None
    return None if found is None else found[1]


def misfits(installation: Installation) -> list[Misfit]:
    """Return what does not fit in an installation; nothing if all is well."""
    return [*_of_python(installation), *_of_spark(installation), *_of_pair(installation), *_of_packages(installation)]


def require_versions(installation: Installation) -> None:
    """Check that a Spark job can be expected to work; log what was merely never tested.

    :raises ConfigurationError: naming what does not fit, what to install, and the versions that there are.
    """
    found = misfits(installation)
    for misfit in found:
        if not misfit.is_fatal:
            log.warning("%s", misfit)
    if fatal := [str(misfit) for misfit in found if misfit.is_fatal]:
        raise ConfigurationError(f"{'; '.join(fatal)} (there are: {installation})")


def _of_python(installation: Installation) -> Iterator[Misfit]:
    least, end = PYTHONS
    if installation.python is not None and not least <= installation.python[:2] < end:
        version = ".".join(map(str, installation.python))
        yield Misfit(f"Python {version} is not supported", "use Python 3.11, 3.12 or 3.13")


def _of_spark(installation: Installation) -> Iterator[Misfit]:
    spark = installation.spark
    if spark is None:
        return
    least, end = SPARKS
    where = "" if installation.is_own else f" in {installation.spark_home}"
    if not least <= _release(spark) < end:
        yield Misfit(f"Spark {spark}{where} is not supported", f"use Spark 4, or {INSTALL_SPARK}")
    elif _release(spark)[:2] != _release(TESTED_SPARK)[:2]:
        yield Misfit(
            f"Spark {spark}{where} is not tested with this package", f"Spark {TESTED_SPARK} is", is_fatal=False
        )


def _of_pair(installation: Installation) -> Iterator[Misfit]:
    spark, client = installation.packages.get("pyspark"), installation.packages.get("pyspark-client")
    if spark and client and spark != client:
        yield Misfit(
            f"pyspark {spark} and pyspark-client {client} own the same files, and the later one overwrote the other's",
            INSTALL_PAIR,
            is_fatal=installation.is_own,  # another Spark brings a pyspark of its own, which jobs import first
        )
    elif installation.spark and installation.imported and not _is_same(installation.spark, installation.imported):
        yield Misfit(
            f"pyspark {installation.imported} does not fit Spark {installation.spark} in {installation.spark_home}",
            f"install pyspark {installation.spark}, or take it out and let spark-submit bring Spark's own",
        )


def _of_packages(installation: Installation) -> Iterator[Misfit]:
    pandas, pyarrow = installation.packages.get("pandas"), installation.packages.get("pyarrow")
    least, end = PANDAS
    if pandas and not least <= _release(pandas) < end:
        yield Misfit(f"Spark {TESTED_SPARK} does not support pandas {pandas}", "run `pip install 'pandas>=2.2,<3'`")
    if pyarrow and _release(pyarrow) < PYARROW:
        yield Misfit(f"pyarrow {pyarrow} is too old for Spark {TESTED_SPARK}", "run `pip install 'pyarrow>=18'`")


def _is_same(spark: str, pyspark: str) -> bool:
    # Vendors add something of their own: Spark 4.2.0-amzn-1 fits pyspark 4.2.0.
    return _release(spark)[:3] == _release(pyspark)[:3]


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def _python_of_jobs(environment: Mapping[str, str]) -> Path:
    given = environment.get("PYSPARK_DRIVER_PYTHON") or environment.get("PYSPARK_PYTHON") or sys.executable
    return Path(shutil.which(given, path=environment.get("PATH")) or given)


def _package_versions() -> Iterator[tuple[str, str]]:
    for name in PACKAGES:
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue


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
