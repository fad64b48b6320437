"""The package as it travels to a Spark job."""

from __future__ import annotations

import os
import py_compile
import sys
import zipfile
from pathlib import Path
from types import CodeType
from zipimport import zipimporter

import pytest

from airflow_provider_coordination.operators.shipping import write_package_archive


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return a small package, of which nothing is compiled yet."""
    folder = tmp_path / "shipped"
    for name in ("spark", "operators"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").touch()
        (folder / name / "module.py").write_text("ANSWER = 41\n")
    return folder


def _shipped(tmp_path: Path, package: Path) -> list[str]:
    with zipfile.ZipFile(write_package_archive(tmp_path, package)) as archive:
        return archive.namelist()


def _code(tmp_path: Path, package: Path) -> CodeType:
    code = zipimporter(str(write_package_archive(tmp_path, package) / "shipped" / "spark")).get_code("module")
    assert isinstance(code, CodeType)
    return code


def test_the_same_sources_give_the_same_archive(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.mkdir()
    second.mkdir()
    assert write_package_archive(first).read_bytes() == write_package_archive(second).read_bytes()


def test_all_sources_travel_compiled_or_not(tmp_path: Path, package: Path) -> None:
    py_compile.compile(str(package / "spark" / "module.py"))
    sources = {f"shipped/{folder}/{name}.py" for folder in ("spark", "operators") for name in ("__init__", "module")}
    assert set(_shipped(tmp_path, package)) == sources | {"shipped/spark/module.pyc"}


def test_what_no_job_imports_travels_as_source_alone(tmp_path: Path, package: Path) -> None:
    py_compile.compile(str(package / "operators" / "module.py"))
    assert not any(name.endswith(".pyc") for name in _shipped(tmp_path, package))


@pytest.mark.parametrize("how", py_compile.PycInvalidationMode)
def test_a_job_takes_a_module_as_it_was_compiled_here(
    tmp_path: Path, package: Path, how: py_compile.PycInvalidationMode
) -> None:
    py_compile.compile(str(package / "spark" / "module.py"), dfile="compiled here", invalidation_mode=how)
    assert _code(tmp_path, package).co_filename == "compiled here"


@pytest.mark.parametrize("how", py_compile.PycInvalidationMode)
def test_a_module_that_changed_since_it_was_compiled_travels_as_source(
    tmp_path: Path, package: Path, how: py_compile.PycInvalidationMode
) -> None:
    module = package / "spark" / "module.py"
    py_compile.compile(str(module), invalidation_mode=how)
    module.write_text("ANSWER = 42\n")
    os.utime(module, (1_000_000_000, 1_000_000_000))
    assert 42 in _code(tmp_path, package).co_consts


def test_what_another_python_compiled_stays_here(tmp_path: Path, package: Path) -> None:
    compiled = Path(str(py_compile.compile(str(package / "spark" / "module.py"))))
    compiled.write_bytes(b"\0\0\r\n" + compiled.read_bytes()[4:])
    assert "shipped/spark/module.pyc" not in _shipped(tmp_path, package)


def test_another_python_takes_the_source_beside_what_was_compiled_here(tmp_path: Path, package: Path) -> None:
    py_compile.compile(str(package / "spark" / "module.py"), dfile="compiled here")
    with zipfile.ZipFile(write_package_archive(tmp_path, package)) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(tmp_path / "elsewhere.zip", "w") as archive:  # as if this Python were another
        for name, data in content.items():
            archive.writestr(name, b"\0\0\r\n" + data[4:] if name.endswith(".pyc") else data)
    code = zipimporter(str(tmp_path / "elsewhere.zip" / "shipped" / "spark")).get_code("module")
    assert isinstance(code, CodeType)
    assert code.co_filename != "compiled here"


def test_asserts_travel_although_this_machine_runs_without(tmp_path: Path, package: Path) -> None:
    py_compile.compile(str(package / "spark" / "module.py"), optimize=2)
    assert sys.flags.optimize == 0
    assert "shipped/spark/module.pyc" not in _shipped(tmp_path, package)
