"""`make test-matrix` chooses the cells that were asked for, and counts what their tests did."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools import matrix
from tools.matrix import Cell, MatrixError, MissingPythonError, Result, Results

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.mark.parametrize("airflow", matrix.AIRFLOWS)
def test_each_tested_airflow_has_constraints_and_a_cell(airflow: str) -> None:
    cell = Cell(airflow, python=matrix.USUAL_PYTHON)
    assert cell in matrix.CELLS
    assert f"apache-airflow=={airflow}." in matrix.constraints_of(cell).read_text()


def test_newer_python_leaves_out_pins_without_wheels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(matrix, "FOLDER", tmp_path)
    usual, newer = (
        matrix.constraints_of(Cell("3.3", python=python)).read_text().splitlines() for python in ("3.12", "3.14")
    )
    assert {line.partition("==")[0] for line in {*usual} - {*newer}} == {*matrix.UNBUILT}
    assert {*newer} < {*usual}


def test_without_choices_all_cells_are_tested() -> None:
    assert matrix.chosen("", "", "") == list(matrix.CELLS)


def test_chosen_version_names_its_cells() -> None:
    assert {cell.airflow for cell in matrix.chosen("3.3", "", "")} == {"3.3"}
    assert len(matrix.chosen("3.3", "", "")) > len(matrix.chosen("3.3", "", "3.12")) == 1
    assert matrix.chosen("3.1", "4.0", "") == [Cell("3.1", "4.0", "3.12")]


def test_other_combination_with_an_airflow_is_a_cell() -> None:
    assert matrix.chosen("3.1", "", "3.13") == [Cell("3.1", python="3.13")]
    assert matrix.chosen("3.1", "3.5", "") == [Cell("3.1", "3.5", "3.12")]


def test_pair_uses_the_environment_of_its_airflow_and_its_spark() -> None:
    pair, variables = matrix.PAIRS[0], matrix.environment_of(matrix.PAIRS[0])
    assert pair.environment == Cell(pair.airflow, python=pair.python).environment
    assert variables["SPARK_HOME"] == str(Cell(None, pair.spark).spark_folder / "pyspark")
    assert variables["PATH"].startswith(f"{pair.environment}/bin:")


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (("3.0", "", ""), "AIRFLOW is '3.0': name one of 3.1, 3.2, 3.3"),
        (("", "3.4", ""), "SPARK is '3.4': name one of"),
        (("", "", "3.10"), "PYTHON is '3.10': name one of 3.11"),
        (("", "4.2", "3.12"), "PYTHON is '3.12': name an AIRFLOW beside it"),
    ],
)
def test_untested_version_is_refused_by_name(choice: tuple[str, str, str], message: str) -> None:
    with pytest.raises(MatrixError, match=message):
        matrix.chosen(*choice)


def test_missing_python_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert Path(matrix.interpreter(HERE)).exists()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    with pytest.raises(MissingPythonError, match=f"this machine has no Python {HERE}: install it"):
        matrix.interpreter(HERE)


def test_passed_checks_are_kept_for_their_commit_only(tmp_path: Path) -> None:
    results = Results(tmp_path / "cell.json", "a")
    results.add("DAGs", Result("passed", 1.0, "1 passed"))
    results.add("unit tests", Result("failed", 2.0, "1 failed"))
    kept = {}
    for commit in ("a", "b", None):
        again = Results(tmp_path / "cell.json", commit)
        again.load()
        kept[commit] = list(again.checks)
    assert kept == {"a": ["DAGs"], "b": [], None: []}


def test_counts_of_a_report_include_errors_as_failures(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    assert matrix.counts(report) == "no report"
    report.write_text('<testsuites><testsuite tests="9" failures="1" errors="2" skipped="3"/></testsuites>')
    assert matrix.counts(report) == "3 passed, 3 failed, 3 skipped"
