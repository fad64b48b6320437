"""The archive of the package for a Spark job, and the program that brings its settings to a container."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from types import CodeType
from zipimport import zipimporter

import pytest

from airflow_provider_coordination.operators.packaging import write_container_program, write_package_archive


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return a small package."""
    folder = tmp_path / "shipped"
    for name in ("spark", "operators"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").touch()
        (folder / name / "module.py").write_text("ANSWER = 41\n")
    return folder


def _shipped(tmp_path: Path, package: Path) -> list[str]:
    with zipfile.ZipFile(write_package_archive(tmp_path, package)) as archive:
        return archive.namelist()


def _with(tmp_path: Path, package: Path, changed: dict[str, bytes]) -> Path:
    """Return the package's archive with some of its files replaced."""
    with zipfile.ZipFile(write_package_archive(tmp_path, package)) as archive:
        content = {name: archive.read(name) for name in archive.namelist()} | changed
    with zipfile.ZipFile(tmp_path / "changed.zip", "w") as file:
        for name, data in content.items():
            file.writestr(name, data)
    return tmp_path / "changed.zip"


def _code(archive: Path) -> CodeType:
    code = zipimporter(str(archive / "shipped" / "spark")).get_code("module")
    assert isinstance(code, CodeType)
    return code


def test_same_sources_give_the_same_archive(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.mkdir()
    second.mkdir()
    assert write_package_archive(first).read_bytes() == write_package_archive(second).read_bytes()


def test_imported_modules_ship_compiled_beside_their_source(tmp_path: Path, package: Path) -> None:
    sources = {f"shipped/{folder}/{name}.py" for folder in ("spark", "operators") for name in ("__init__", "module")}
    compiled = {"shipped/spark/__init__.pyc", "shipped/spark/module.pyc"}
    assert set(_shipped(tmp_path, package)) == sources | compiled


def test_job_uses_compiled_modules_without_checking_sources(tmp_path: Path, package: Path) -> None:
    archive = _with(tmp_path, package, {"shipped/spark/module.py": b"ANSWER = 42\n"})
    assert 41 in _code(archive).co_consts


def test_changed_module_ships_in_its_current_form(tmp_path: Path, package: Path) -> None:
    write_package_archive(tmp_path, package)
    (package / "spark" / "module.py").write_text("ANSWER = 42\n")
    assert 42 in _code(write_package_archive(tmp_path, package)).co_consts


def test_traceback_names_a_module_without_local_folders(tmp_path: Path, package: Path) -> None:
    assert _code(write_package_archive(tmp_path, package)).co_filename == "shipped/spark/module.py"


def test_other_python_version_uses_the_source(tmp_path: Path, package: Path) -> None:
    with zipfile.ZipFile(write_package_archive(tmp_path, package)) as archive:
        compiled = archive.read("shipped/spark/module.pyc")
    elsewhere = _with(  # as if this Python were another
        tmp_path,
        package,
        {
            "shipped/spark/module.pyc": b"\0\0\r\n" + compiled[4:],
            "shipped/spark/module.py": b"ANSWER = 42\n",
        },
    )
    assert 42 in _code(elsewhere).co_consts


def test_asserts_are_kept_under_an_optimizing_python(tmp_path: Path, package: Path) -> None:
    (package / "spark" / "module.py").write_text("assert 'it travels'\n")
    script = (
        "import sys; from pathlib import Path;"
        "from airflow_provider_coordination.operators.packaging import write_package_archive;"
        "write_package_archive(Path(sys.argv[1]), Path(sys.argv[2]))"
    )
    subprocess.run([sys.executable, "-O", "-c", script, tmp_path, package], check=True)
    assert "it travels" in _code(tmp_path / "shipped.zip").co_consts


def test_container_program_gives_settings_to_the_application_alone(tmp_path: Path) -> None:
    application, settings_file = tmp_path / "app.py", tmp_path / "job.json"
    application.write_text(
        "import json, os, sys\n"
        "if __name__ == '__main__':\n"
        "    mode = oct(os.stat(sys.argv[1]).st_mode & 0o777)\n"
        "    print(json.dumps([sys.argv, open(sys.argv[1]).read(), mode]))\n"
        "    sys.exit(78)\n"
    )
    secret = '{"password": "\'\\"\\\\ Łódź"}'
    settings_file.write_text(secret, encoding="utf-8")
    program = write_container_program(settings_file, f"hdfs://apps/{application.name}")
    assert (program.stat().st_mode & 0o777, settings_file.exists()) == (0o600, False)
    container = tmp_path / "container"
    container.mkdir()
    (container / program.name).symlink_to(program)
    (container / application.name).symlink_to(application)

    command = [sys.executable, str(container / program.name), settings_file.name, "owner"]
    done = subprocess.run(command, cwd=container, capture_output=True, text=True, check=False)

    assert done.returncode == 78, done.stderr
    assert json.loads(done.stdout) == [[application.name, settings_file.name, "owner"], secret, "0o600"]
    assert not program.exists(), "the node keeps what it fetched for a container"
