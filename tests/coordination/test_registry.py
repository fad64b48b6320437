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


def test_the_packages_own_are_found_by_their_modules(shapes: Registry[str]) -> None:
    assert shapes.load("round") == "own round"
    assert shapes.implementation("round") is None


def test_another_distribution_registers_one_by_an_entry_point(shapes: Registry[str], install: Install) -> None:
    install("squares", "square", "squares_of_test", "OBJECT = 'square'")
    assert shapes.load("square") == "square"
    assert shapes.implementation("square") == "squares_of_test:OBJECT"


def test_the_names_are_listed_without_importing_any(shapes: Registry[str], install: Install) -> None:
    install("broken", "crooked", "crooked_of_test", "raise RuntimeError")
    assert shapes.names() == ["bent", "crooked", "round"]
    assert [shapes.knows(name) for name in ("round", "crooked", "oval")] == [True, True, False]
    assert not any(name.startswith(("shapes_of_test.", "crooked_of_test")) for name in sys.modules)


def test_an_implementation_that_travelled_is_imported_where_no_entry_point_is_seen(
    shapes: Registry[str], install: Install, tmp_path: Path
) -> None:
    install("squares", "square", "squares_of_test", "OBJECT = 'square'")
    shutil.rmtree(tmp_path / "squares" / "squares-1.0.dist-info")
    assert shapes.load("square", "squares_of_test:OBJECT") == "square"


def test_the_packages_own_are_found_in_a_zip_that_has_no_metadata(shapes: Registry[str], tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "shapes"), "zip", tmp_path / "own")
    program = (
        "from airflow_provider_coordination.coordination.registry import Registry;"
        "shapes = Registry('shape', 'shapes_of_test.{name}.shape:SHAPE', 'test.shapes', str);"
        "print(shapes.names(), shapes.load('round'))"
    )
    environment = {"PYTHONPATH": f"{archive}:{Path.cwd()}", "PATH": ""}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == "['bent', 'round'] own round\n"


def test_a_name_that_nobody_registered_is_refused_with_those_that_are(shapes: Registry[str], install: Install) -> None:
    install("squares", "square", "squares_of_test", "OBJECT = 'square'")
    with pytest.raises(
        ConfigurationError, match=r"shape 'oval' is not known; the known names are 'bent', 'round', 'square'\."
    ):
        shapes.load("oval")
    with pytest.raises(ConfigurationError, match=r"registers it as an entry point of the group 'test\.shapes'"):
        shapes.implementation("oval")


@pytest.mark.parametrize("name", ["", ".", "..", "round.shape", "round:SHAPE", "corners", "colours", "../round"])
def test_what_is_no_name_of_an_implementation_is_refused(shapes: Registry[str], name: str) -> None:
    with pytest.raises(ConfigurationError, match="is not known"):
        shapes.load(name)


def test_two_distributions_with_one_name_are_both_named(shapes: Registry[str], install: Install) -> None:
    install("squares", "square", "squares_of_test", "OBJECT = 'square'")
    install("tiles", "square", "tiles_of_test", "OBJECT = 'tile'")
    with pytest.raises(ConfigurationError) as caught:
        shapes.load("square")
    assert "shape 'square' is registered by tiles 1.0 and by squares 1.0" in str(caught.value)
    assert "uninstall all but one of them" in str(caught.value)


def test_a_distribution_cannot_take_a_name_of_the_packages_own(shapes: Registry[str], install: Install) -> None:
    install("rounder", "round", "rounder_of_test", "OBJECT = 'rounder'")
    with pytest.raises(ConfigurationError, match=r"registered by airflow-provider-coordination and by rounder 1\.0"):
        shapes.implementation("round")


def test_an_entry_point_that_cannot_be_imported_is_named_with_its_distribution(
    shapes: Registry[str], install: Install
) -> None:
    install("broken", "crooked", "crooked_of_test", "raise RuntimeError('no ruler')")
    with pytest.raises(ConfigurationError) as caught:
        shapes.load("crooked")
    assert str(caught.value) == (
        "shape 'crooked': entry point 'crooked = crooked_of_test:OBJECT' of broken 1.0 cannot be imported: "
        "RuntimeError: no ruler; fix that distribution, or uninstall it"
    )


def test_an_entry_point_whose_object_is_missing_is_named(shapes: Registry[str], install: Install) -> None:
    install("empty", "hollow", "hollow_of_test", "")
    with pytest.raises(ConfigurationError, match=r"of empty 1\.0 cannot be imported: AttributeError: .*'OBJECT'"):
        shapes.load("hollow")


def test_an_object_that_is_no_implementation_is_refused(shapes: Registry[str], install: Install) -> None:
    install("numbers", "number", "numbers_of_test", "OBJECT = 7")
    with pytest.raises(ConfigurationError, match=r"of numbers 1\.0 must be a str; got int"):
        shapes.load("number")


@pytest.mark.parametrize("reference", ["nowhere_of_test:OBJECT", "squares_of_test:CIRCLE", "squares_of_test", ""])
def test_an_implementation_that_cannot_be_imported_says_what_to_ship(
    shapes: Registry[str], install: Install, reference: str
) -> None:
    install("squares", "square", "squares_of_test", "OBJECT = 'square'")
    with pytest.raises(ConfigurationError, match=r"cannot be imported: .*; ship its module with 'py_files'"):
        shapes.load("square", reference)


def test_one_of_the_packages_own_that_lacks_a_library_names_it(shapes: Registry[str]) -> None:
    with pytest.raises(ConfigurationError, match=r"shape 'bent' cannot be imported: .*'a_library_that_is_missing'"):
        shapes.load("bent")
