"""Implementations are found by name: built-in ones by their module, others by entry point."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.registry import Registry
from tests.support.distributions import install as install_distribution

Install = Callable[..., None]


@pytest.fixture
def shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry[str]:
    """A registry with two implementations of its own: a folder `round`, and `bent`, which cannot be imported."""
    package = tmp_path / "own" / "shapes_of_test"
    for name, text in {"round": "SHAPE = 'own round'", "bent": "import a_library_that_is_missing"}.items():
        (package / name).mkdir(parents=True)
        (package / name / "__init__.py").write_text("IMPORTED = True")
        (package / name / "shape.py").write_text(text)
    (package / "__init__.py").write_text("")
    (package / "corners.py").write_text("raise AssertionError('imported, and nobody asked for it')")
    (package / "colours").mkdir()
    (package / "colours" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path / "own"))
    forget("shapes_of_test")
    return Registry("shape", "shapes_of_test.{name}.shape:SHAPE", "test.shapes", str)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a distribution, with one module, that registers a shape."""

    def installed(distribution: str, name: str, module: str, text: str) -> None:
        site = tmp_path / distribution
        install_distribution(site, distribution, "test.shapes", {name: f"{module}:OBJECT"})
        (site / f"{module}.py").write_text(text)
        monkeypatch.syspath_prepend(str(site))
        forget(module)

    return installed


def forget(module: str) -> None:
    """Let a module, and those below it, be imported again."""
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        del sys.modules[name]
    importlib.invalidate_caches()


def test_built_in_implementations_are_found_by_module(shapes: Registry[str]) -> None:
    assert shapes.load("round") == "own round"
    assert shapes.implementation("round") is None


def test_entry_point_registers_an_implementation(shapes: Registry[str], install: Install) -> None:
    install("squares", "square", "squares_of_test", "OBJECT = 'square'")
    assert shapes.load("square") == "square"
    assert shapes.implementation("square") == "squares_of_test:OBJECT"


def test_names_are_listed_without_importing(shapes: Registry[str], install: Install) -> None:
    install("broken", "crooked", "crooked_of_test", "raise RuntimeError")
    assert shapes.names() == ["bent", "crooked", "round"]
    assert [shapes.knows(name) for name in ("round", "crooked", "oval")] == [True, True, False]
    assert not any(name.startswith(("shapes_of_test.", "crooked_of_test")) for name in sys.modules)


def test_shipped_implementation_needs_no_entry_point(shapes: Registry[str], install: Install, tmp_path: Path) -> None:
    install("squares", "square", "squares_of_test", "OBJECT = 'square'")
    shutil.rmtree(tmp_path / "squares" / "squares-1.0.dist-info")
    assert shapes.load("square", "squares_of_test:OBJECT") == "square"


def test_built_in_implementations_are_found_in_a_zip(shapes: Registry[str], tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "shapes"), "zip", tmp_path / "own")
    program = (
        "from airflow_provider_coordination.coordination.registry import Registry;"
        "shapes = Registry('shape', 'shapes_of_test.{name}.shape:SHAPE', 'test.shapes', str);"
        "print(shapes.names(), shapes.load('round'))"
    )
    environment = {"PYTHONPATH": f"{archive}:{Path.cwd()}", "PATH": ""}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == "['bent', 'round'] own round\n"


def test_unregistered_name_is_refused_with_the_known_ones(shapes: Registry[str], install: Install) -> None:
    install("squares", "square", "squares_of_test", "OBJECT = 'square'")
    with pytest.raises(
        ConfigurationError, match=r"shape 'oval' is not known; the known names are 'bent', 'round', 'square'\."
    ):
        shapes.load("oval")
    with pytest.raises(ConfigurationError, match=r"registers it as an entry point of the group 'test\.shapes'"):
        shapes.implementation("oval")


@pytest.mark.parametrize("name", ["", ".", "..", "round.shape", "round:SHAPE", "corners", "colours", "../round"])
def test_invalid_name_is_refused(shapes: Registry[str], name: str) -> None:
    with pytest.raises(ConfigurationError, match="is not known"):
        shapes.load(name)


def test_duplicate_name_names_both_distributions(shapes: Registry[str], install: Install) -> None:
    install("squares", "square", "squares_of_test", "OBJECT = 'square'")
    install("tiles", "square", "tiles_of_test", "OBJECT = 'tile'")
    with pytest.raises(ConfigurationError) as caught:
        shapes.load("square")
    assert "shape 'square' is registered by tiles 1.0 and by squares 1.0" in str(caught.value)
    assert "uninstall all but one of them" in str(caught.value)


def test_entry_point_cannot_take_a_built_in_name(shapes: Registry[str], install: Install) -> None:
    install("rounder", "round", "rounder_of_test", "OBJECT = 'rounder'")
    with pytest.raises(ConfigurationError, match=r"registered by airflow-provider-coordination and by rounder 1\.0"):
        shapes.implementation("round")


def test_failing_entry_point_is_named_with_its_distribution(shapes: Registry[str], install: Install) -> None:
    install("broken", "crooked", "crooked_of_test", "raise RuntimeError('no ruler')")
    with pytest.raises(ConfigurationError) as caught:
        shapes.load("crooked")
    assert str(caught.value) == (
        "shape 'crooked': entry point 'crooked = crooked_of_test:OBJECT' of broken 1.0 cannot be imported: "
        "RuntimeError: no ruler; fix that distribution, or uninstall it"
    )


def test_entry_point_without_its_object_is_named(shapes: Registry[str], install: Install) -> None:
    install("empty", "hollow", "hollow_of_test", "")
    with pytest.raises(ConfigurationError, match=r"of empty 1\.0: module 'hollow_of_test' has no 'OBJECT'; fix that"):
        shapes.load("hollow")


def test_object_that_is_no_implementation_is_refused(shapes: Registry[str], install: Install) -> None:
    install("numbers", "number", "numbers_of_test", "OBJECT = 7")
    with pytest.raises(ConfigurationError, match=r"of numbers 1\.0 must be a str; got int"):
        shapes.load("number")


@pytest.mark.parametrize("reference", ["nowhere_of_test:OBJECT", "squares_of_test:CIRCLE", "squares_of_test", ""])
def test_failing_import_names_the_package_to_ship(shapes: Registry[str], install: Install, reference: str) -> None:
    install("squares", "square", "squares_of_test", "OBJECT = 'square'")
    with pytest.raises(ConfigurationError, match=r"(cannot be imported: |has no ).*; ship its module with 'py_files'"):
        shapes.load("square", reference)


def test_built_in_implementation_names_its_missing_library(shapes: Registry[str]) -> None:
    with pytest.raises(ConfigurationError, match=r"shape 'bent' cannot be imported: .*'a_library_that_is_missing'"):
        shapes.load("bent")
