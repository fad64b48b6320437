"""The Chakra UI of the pages for an Airflow that shares none: what is in it, and when it is made."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.support.servers import unavailable
from tools import chakra

PAGES = REPOSITORY / "airflow_provider_coordination" / "ui" / "static"
LOAD = """
globalThis.React = {
  version: "19.1.1",
  Children: { toArray: () => [] },
  createContext: () => ({}),
  forwardRef: (each) => ({ each }),
  memo: (each) => each,
};
globalThis.ReactDOM = {};
globalThis.ReactJSXRuntime = { jsx: () => ({}), jsxs: () => ({}) };
const C = await import(process.argv[1]);
const paths = JSON.parse(process.argv[2]);
const missing = paths.filter((path) => !path.split(".").reduce((found, name) => found?.[name], C));
console.log(JSON.stringify(missing));
"""
"""Prints which paths the bundle does not have. React is not needed before something is drawn."""


def used() -> set[str]:
    """What the pages use of Chakra UI, such as `Dialog.Root`."""
    text = "\n".join(page.read_text() for page in PAGES.glob("*.js"))
    return set(re.findall(r"\bC\.([A-Za-z]+(?:\.[A-Za-z]+)?)", text))


@pytest.fixture(scope="module")
def bundle() -> Path:
    try:
        chakra.make(REPOSITORY)
    except chakra.ChakraError as reason:
        unavailable("Chakra UI for the pages", reason)
    return REPOSITORY / chakra.VENDOR / "chakra.js"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose npm installs nothing, and whose Node.js counts the bundles that it makes."""
    shutil.copytree(REPOSITORY / chakra.SOURCES, tmp_path / chakra.SOURCES)
    (tmp_path / chakra.VENDOR.parent).mkdir(parents=True)
    programs = tmp_path / "bin"
    programs.mkdir()
    node = f'echo made >>{tmp_path}/made; echo "bundled from $3;" >"$2/chakra.js"; echo >"$2/LICENSES.txt"'
    for name, script in (("npm", "exit 0"), ("node", node)):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def times_made(root: Path) -> int:
    return (root / "made").read_text().count("made")


def test_bundle_exports_what_the_pages_use_alone() -> None:
    text = (REPOSITORY / chakra.SOURCES / "chakra.js").read_text()
    [names] = re.findall(r"export \{(.*?)\} from", text, re.DOTALL)
    assert set(re.findall(r"\w+", names)) == {path.partition(".")[0] for path in used()}


def test_bundle_has_every_part_of_its_components(bundle: Path) -> None:
    node, _ = chakra.node_and_npm()
    command = [node, "--input-type=module", "--eval", LOAD, bundle.as_uri(), json.dumps(sorted(used() | {"Theme"}))]
    assert json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout) == []


def test_bundle_names_no_react_of_its_own(bundle: Path) -> None:
    text = bundle.read_text(encoding="utf-8")
    assert text.count("globalThis.React") == len(("React", "ReactDOM", "ReactJSXRuntime"))
    assert "React.__SECRET" not in text and 'Symbol.for("react.transitional.element")' not in text


def test_licenses_name_the_bundled_packages(bundle: Path) -> None:
    text = bundle.with_name("LICENSES.txt").read_text()
    assert re.search(r"^@chakra-ui/react 3\.\d+\.\d+$", text, re.MULTILINE)
    assert re.search(r"^stylis 4\.", text, re.MULTILINE)
    assert "esbuild" not in text and "babel" not in text


def test_versions_are_exact_and_without_addresses() -> None:
    sources = REPOSITORY / chakra.SOURCES
    versions = json.loads((sources / "package.json").read_text())["dependencies"].values()
    assert [version for version in versions if not re.fullmatch(r"\d+\.\d+\.\d+", version)] == []
    pinned = json.loads((sources / "package-lock.json").read_text())["packages"]
    assert [path for path, package in pinned.items() if path and not package["integrity"].startswith("sha512-")] == []
    assert "://" not in (sources / "package-lock.json").read_text()


def test_bundle_is_made_once(root: Path) -> None:
    chakra.make(root)
    chakra.make(root)
    assert times_made(root) == 1
    assert sorted(path.name for path in (root / chakra.VENDOR).iterdir()) == ["LICENSES.txt", "chakra.js"]


@pytest.mark.parametrize("name", chakra.NAMES)
def test_changed_source_makes_the_bundle_again(name: str, root: Path) -> None:
    chakra.make(root)
    with (root / chakra.SOURCES / name).open("a") as source:
        source.write("\n")
    chakra.make(root)
    assert times_made(root) == 2


def test_npm_without_a_network_is_an_error(root: Path) -> None:
    (root / "bin" / "npm").write_text("#!/bin/sh\necho 'npm error network' >&2\nexit 1\n")
    with pytest.raises(chakra.ChakraError, match=r"npm ci .* failed: npm error network"):
        chakra.make(root)
    assert not (root / chakra.VENDOR).exists()
