"""Incompatible versions of Python, Spark, pandas and pyarrow are found before Spark starts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from itertools import chain
from pathlib import Path

import pytest

from airflow_provider_coordination import airflow_names
from airflow_provider_coordination.airflow_names import OLDEST, PLACES, PLACES_OF_EXCEPTIONS, release_of
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.versions import (
    Installation,
    find_installation,
    find_java,
    incompatibilities,
    require_versions,
    spark_version,
)
from tests.conftest import REPOSITORY
from tests.support.java_home import make_java
from tests.support.spark_home import make_spark_home

GOOD = {"pyspark": "4.2.0", "pyspark-client": "4.2.0", "pandas": "2.3.3", "pyarrow": "26.0.1"}


def installation(
    *,
    python: tuple[int, ...] | None = (3, 12, 4),
    spark: str | None = "4.2.0",
    is_own: bool = True,
    imported: str | None = None,
    **packages: str,
) -> Installation:
    given = {name.replace("_", "-"): version for name, version in packages.items()}
    return Installation(python, GOOD | given, spark, "/opt/spark", is_own, imported)


@pytest.mark.parametrize("python", [(3, 11, 0), (3, 12, 4), (3, 13, 9), (3, 14, 8), None])
def test_tested_pair_fits(python: tuple[int, ...] | None) -> None:
    assert incompatibilities(installation(python=python)) == []


@pytest.mark.parametrize(
    ("found", "problem", "remedy"),
    [
        (installation(python=(3, 10, 1)), "Python 3.10.1 is not supported", "use Python 3.11, 3.12, 3.13 or 3.14"),
        (installation(python=(3, 15, 0)), "Python 3.15.0 is not supported", "use Python 3.11, 3.12, 3.13 or 3.14"),
        (installation(spark="3.4.4"), "Spark 3.4.4 is not supported", "'airflow-provider-coordination[spark]'"),
        (installation(spark="5.0.0"), "Spark 5.0.0 is not supported", "use Spark 3.5 or 4"),
        (
            installation(pyspark="4.3.0", spark="4.3.0"),
            "pyspark 4.3.0 and pyspark-client 4.2.0 own the same files",
            "pip install 'pyspark==4.3.0' 'pyspark-client==4.3.0'",
        ),
        (
            installation(spark="4.1.2", is_own=False, imported="4.2.0"),
            "pyspark 4.2.0 does not fit Spark 4.1.2 in /opt/spark",
            "install pyspark 4.1.2",
        ),
        (installation(pandas="3.1.1"), "does not support pandas 3.1.1", "pip install 'pandas>=2.2,<3'"),
        (installation(pandas="2.1.4"), "Spark 4.2.0 does not support pandas 2.1.4", "pip install 'pandas>=2.2,<3'"),
        (
            installation(pandas="1.5.3", spark="3.5.9", is_own=False),
            "Spark 3.5.9 does not support pandas 1.5.3",
            "pip install 'pandas>=2.0,<3'",
        ),
        (installation(pyarrow="17.0.0"), "pyarrow 17.0.0 is too old", "pip install 'pyarrow>=18.0'"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_incompatible_versions_are_refused_with_a_remedy(found: Installation, problem: str, remedy: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        require_versions(found)
    assert problem in str(refused.value)
    assert remedy in str(refused.value)
    assert f"(installed: {found})" in str(refused.value)


@pytest.mark.parametrize(
    "found",
    [
        installation(spark="4.4.0", is_own=False),
        installation(pyspark="4.3.0", is_own=False),  # jobs import the pyspark of SPARK_HOME first
    ],
    ids=["another minor version", "a pair that no job uses"],
)
def test_untested_versions_are_a_warning(found: Installation, caplog: pytest.LogCaptureFixture) -> None:
    require_versions(found)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize("spark", ["3.5.6-amzn-1", "4.0.3", "4.1.1", "4.2.0", "4.3.0"])
def test_tested_spark_fits_with_the_oldest_pandas(spark: str) -> None:
    oldest = "2.0.0" if spark < "4.1" else "2.2.0"
    assert incompatibilities(installation(spark=spark, is_own=False, pandas=oldest)) == []


@pytest.mark.parametrize(
    ("spark", "java", "fits"),
    [("3.5.9", "11.0.2", True), ("3.5.9", "1.8.0_392", False), ("4.0.5", "11.0.2", False), (None, "11.0.2", False)],
)
def test_oldest_java_depends_on_spark(tmp_path: Path, spark: str | None, java: str, fits: bool) -> None:
    environment = {"JAVA_HOME": make_java(tmp_path / "java", java)}
    if fits:
        assert find_java(environment, spark).version == java
        return
    with pytest.raises(
        ConfigurationError, match=rf"Java {java} in .* is too old for Spark {spark if spark == '3.5.9' else 4}"
    ):
        find_java(environment, spark)


def test_vendor_version_fits_its_underlying_pyspark() -> None:
    assert incompatibilities(installation(spark="4.2.0-amzn-1", is_own=False, imported="4.2.0")) == []


def test_absent_packages_are_ignored() -> None:
    assert incompatibilities(Installation((3, 12), {}, None, None)) == []


def test_this_environment_is_compatible_and_uses_its_own_spark() -> None:
    found = find_installation({"PATH": os.environ["PATH"]}, is_driver=True)
    assert found.is_own
    assert found.spark == found.imported == found.packages["pyspark"]
    assert incompatibilities(found) == []


def test_spark_home_wins(tmp_path: Path) -> None:
    found = find_installation({"SPARK_HOME": str(make_spark_home(tmp_path / "spark", "4.1.2"))})
    assert (found.spark, found.is_own) == ("4.1.2", False)


def test_other_python_is_not_judged_by_these_packages(tmp_path: Path) -> None:
    other = tmp_path / "python3"
    shutil.copy("/bin/sh", other)
    found = find_installation({"PYSPARK_PYTHON": str(other)})
    assert (found.python, found.packages) == (None, {})


def test_environment_of_the_same_python_is_another_one(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    other = tmp_path / "bin" / "python"
    other.symlink_to(Path(sys.executable).resolve())
    assert find_installation({"PYSPARK_PYTHON": str(other)}).packages == {}


@pytest.mark.parametrize(
    ("release", "version"),
    [("Spark 4.2.0 (git revision 1) built for Hadoop 3.4.2\n", "4.2.0"), ("something else", None), (None, None)],
)
def test_spark_without_jars_is_known_by_its_release_file(
    tmp_path: Path, release: str | None, version: str | None
) -> None:
    if release is not None:
        (tmp_path / "RELEASE").write_text(release)
    assert spark_version(tmp_path) == version


def test_driver_importing_the_spark_zip_knows_its_version(tmp_path: Path) -> None:
    archive, package = tmp_path / "pyspark.zip", tmp_path / "airflow_provider_coordination.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("pyspark/__init__.py", "raise AssertionError('it is not imported')")
        file.writestr("pyspark/version.py", "__version__: str = '4.1.9'\n")
    with zipfile.ZipFile(package, "w") as file:
        for module in ("__init__.py", "versions.py", "coordination/__init__.py", "coordination/errors.py"):
            source = REPOSITORY / "airflow_provider_coordination" / module
            file.write(source, f"airflow_provider_coordination/{module}")
    script = (
        "from airflow_provider_coordination.versions import find_installation;"
        "found = find_installation(is_driver=True); print(found.imported, found.spark, dict(found.packages))"
    )
    # Without site-packages, as on a cluster whose Python has none of these packages.
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {[str(archive), str(package)]}; {script}"]
    environment = {"SPARK_HOME": str(make_spark_home(tmp_path / "spark", "4.1.9"))}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split(maxsplit=2) == ["4.1.9", "4.1.9", "{}\n"]


def test_only_one_module_depends_on_the_version_of_airflow() -> None:
    moved = "|".join(re.escape(place) for place in {*PLACES_OF_EXCEPTIONS, *chain(*PLACES.values())} - {"airflow.sdk"})
    names = r"AIRFLOW_V_|airflow\.__version__|airflow import __version__|\bAIRFLOW\b|sdk import .*\b(conf|Cron\w+)\b"
    pattern = re.compile(rf"(from|import) ({moved})\b|{names}")
    package = REPOSITORY / "airflow_provider_coordination"
    found = {path.name for path in package.rglob("*.py") if pattern.search(path.read_text())}
    assert found == {"airflow_names.py"}


def test_three_modules_name_a_version_of_airflow_or_spark() -> None:
    named = re.compile(
        r"\b(Airflow|Spark|pyspark)('s)? (before |since |from |of )?[2-5](\.\d+)*\b|pyspark\.__version__ *[<>=]"
    )
    package = REPOSITORY / "airflow_provider_coordination"
    found = {path.name for path in package.rglob("*.py") if named.search(path.read_text())}
    assert found == {"airflow_names.py", "spark_versions.py", "versions.py"}


@pytest.mark.parametrize("version", ["2.11.0", "3.0.6", "3.1.7"])
def test_airflow_that_is_too_old_is_refused_in_one_sentence(version: str) -> None:
    with pytest.raises(RuntimeError) as refused:
        release_of(version)
    assert str(refused.value) == (
        f"airflow-provider-coordination needs Airflow 3.1.8 or newer, but {version} is installed; "
        "upgrade with: pip install 'apache-airflow>=3.1.8,<4'"
    )


def test_oldest_airflow_is_the_bound_of_the_package() -> None:
    requirements = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["dependencies"]
    assert f"apache-airflow>={'.'.join(map(str, OLDEST))},<4" in requirements


@pytest.mark.parametrize("version", ["3.1.8", "3.2.0rc1", "3.3.2", "3.10.0", None])
def test_supported_airflow_is_not_refused(version: str | None) -> None:
    assert release_of(version) >= OLDEST


@pytest.mark.parametrize("folder", ["cli", "hooks", "operators", "sensors", "task_groups", "triggers", "ui"])
def test_old_airflow_is_refused_before_its_names_are_imported(folder: str, tmp_path: Path) -> None:
    distribution = tmp_path / "apache_airflow_core-3.0.6.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: apache-airflow-core\nVersion: 3.0.6\n")
    (tmp_path / "airflow.py").write_text("raise AssertionError('it is imported')")
    script = (
        f"import sys; sys.path[:0] = {[str(tmp_path), str(REPOSITORY)]}; import airflow_provider_coordination.{folder}"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].removeprefix("RuntimeError: ").startswith("airflow-provider-coordination needs")
    assert len(done.stderr.splitlines()) == 1 or folder != "cli"


@pytest.mark.parametrize("name", sorted({*PLACES, "AirflowFailException", "TaskDeferralTimeout"}))
def test_moved_name_is_found_in_the_installed_airflow(name: str) -> None:
    assert getattr(airflow_names, name).__module__.startswith("airflow.")
