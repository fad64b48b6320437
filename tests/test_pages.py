"""The pages' bundle for Airflow's UI: what is in it, when it is made, and what checks its sources."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.support.servers import unavailable
from tools import api_schema, pages

LOAD = """
const component = () => ({ each: true });
globalThis.React = {
  version: "19.1.1",
  Children: { toArray: () => [] },
  Component: class {},
  createContext: () => ({}),
  forwardRef: (each) => ({ each }),
  memo: (each) => each,
};
globalThis.ReactDOM = {};
globalThis.ReactJSXRuntime = { jsx: component, jsxs: component };
globalThis.ReactRouterDOM = {};
globalThis.location = new URL("http://localhost/");
globalThis.AirflowPlugin = undefined;
await import(process.argv[1]);
console.log(typeof globalThis.AirflowPlugin);
"""
"""Loads the bundle as Airflow's UI does. React is not needed before something is drawn."""


@pytest.fixture(scope="module")
def bundle() -> Path:
    try:
        pages.make(REPOSITORY)
    except pages.PagesError as reason:
        unavailable("the bundle of the pages", reason)
    return REPOSITORY / pages.BUNDLE


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose npm installs nothing, and whose Node.js counts the bundles that it makes."""
    for path in pages.sources(REPOSITORY):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / path, tmp_path / path)
    (tmp_path / pages.STATIC.parent).mkdir(parents=True)
    programs = tmp_path / "bin"
    programs.mkdir()
    made = f"../{pages.STATIC.as_posix()}"
    names = f"licenses.txt coordination.js Page-$(cat {tmp_path}/made | wc -l | tr -d ' ').js"
    node = f"echo made >>{tmp_path}/made; mkdir -p {made}; for name in {names}; do echo >{made}/$name; done"
    for name, script in (("npm", "exit 0"), ("node", node)):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def times_made(root: Path) -> int:
    return (root / "made").read_text().count("made")


def loaded_with(name: str, folder: Path) -> set[str]:
    """The files that a browser loads for a file: itself and what it imports, and what that imports."""
    loaded, found = set[str](), {name}
    while found:
        loaded |= found
        texts = [(folder / each).read_text(encoding="utf-8") for each in found]
        found = {each for text in texts for each in re.findall(r'\b(?:from|import)"\./([^"]+)"', text)} - loaded
    return loaded


@pytest.mark.parametrize("page", ["Overview", "PartitionsPage", "ShardsPage", "SupervisorPage", "TaskTab"])
def test_page_loads_little_in_few_requests(page: str, bundle: Path) -> None:
    [name] = [path.name for path in bundle.parent.glob(f"{page}-*.js")]
    files = [
        bundle.parent / each for each in loaded_with(bundle.name, bundle.parent) | loaded_with(name, bundle.parent)
    ]
    size = sum(len(gzip.compress(file.read_bytes(), mtime=0)) for file in files)
    assert size < 130_000, f"{size} bytes in {sorted(file.name for file in files)}: load what few need when they do"
    assert len(files) <= 8, f"add to pages/src/shared.ts what several pages use: {sorted(file.name for file in files)}"


def test_bundle_gives_airflow_a_component(bundle: Path, tmp_path: Path) -> None:
    node, _ = pages.node_and_npm()
    shutil.copytree(bundle.parent, tmp_path, dirs_exist_ok=True)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    command = [node, "--input-type=module", "--eval", LOAD, (tmp_path / bundle.name).as_uri()]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "function"


def test_bundle_has_no_react_of_its_own(bundle: Path) -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in bundle.parent.glob("*.js"))
    assert "__CLIENT_INTERNALS_DO_NOT_USE_OR_WARN_USERS_THEY_CANNOT_UPGRADE=" not in text
    assert "createRoot" not in text
    assert "ChakraUI" not in text, "the pages must not depend on what Airflow's version shares"


def test_bundle_turns_no_text_into_code_or_elements(bundle: Path) -> None:
    modules = [REPOSITORY / path for path in pages.sources(REPOSITORY) if path.suffix in (".ts", ".tsx")]
    unsafe = r"[iI]nnerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|\bimport\((?!\"\./)"
    assert [path.name for path in modules if re.search(unsafe, path.read_text())] == []


def test_licenses_name_the_bundled_packages(bundle: Path) -> None:
    text = bundle.with_name("licenses.txt").read_text()
    assert re.search(r"^## @chakra-ui/react - 3\.\d+\.\d+ ", text, re.MULTILINE)
    assert re.search(r"^## @tanstack/react-query - 5\.", text, re.MULTILINE)
    assert "## vite " not in text and "## react " not in text


def test_versions_are_exact_and_without_addresses() -> None:
    sources = REPOSITORY / pages.SOURCES
    package = json.loads((sources / "package.json").read_text())
    versions = [*package["dependencies"].values(), *package["devDependencies"].values()]
    assert [version for version in versions if not re.fullmatch(r"\d+\.\d+\.\d+", version)] == []
    pinned = json.loads((sources / "package-lock.json").read_text())["packages"]
    assert [path for path, each in pinned.items() if path and not each["integrity"].startswith("sha512-")] == []
    assert "://" not in (sources / "package-lock.json").read_text()


def test_bundle_is_made_once(root: Path) -> None:
    pages.make(root)
    pages.make(root)
    assert times_made(root) == 1
    assert {path.name for path in (root / pages.STATIC).iterdir()} == {"coordination.js", "licenses.txt", "Page-1.js"}


def test_files_of_an_older_bundle_are_removed(root: Path) -> None:
    pages.make(root)
    with (root / pages.SOURCES / "src" / "main.tsx").open("a") as source:
        source.write("\n")
    pages.make(root)
    assert {path.name for path in (root / pages.STATIC).iterdir()} == {"coordination.js", "licenses.txt", "Page-2.js"}


@pytest.mark.parametrize("name", ["vite.config.ts", "package-lock.json", "src/main.tsx", "src/overview/Card.tsx"])
def test_changed_source_makes_the_bundle_again(name: str, root: Path) -> None:
    pages.make(root)
    with (root / pages.SOURCES / name).open("a") as source:
        source.write("\n")
    pages.make(root)
    assert times_made(root) == 2


def test_npm_without_a_network_is_an_error(root: Path) -> None:
    (root / "bin" / "npm").write_text("#!/bin/sh\necho 'npm error network' >&2\nexit 1\n")
    with pytest.raises(pages.PagesError, match=r"npm ci .* failed: npm error network"):
        pages.make(root)
    assert not (root / pages.STATIC).exists()


def test_responses_have_all_fields_in_the_api_schema(capsys: pytest.CaptureFixture[str]) -> None:
    api_schema.main()
    schemas = json.loads(capsys.readouterr().out)["components"]["schemas"]
    assert {"owner", "previous_status", "kind"} <= set(schemas["TransitionFacts"]["required"])
    assert "alarms" in schemas["SourceCard"]["required"]


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 1)])
def test_missing_npm_skips_the_check_and_fails_ci(ci: str, code: int, tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "tools", tmp_path / "tools")
    (tmp_path / "pages").mkdir()
    shutil.copy(REPOSITORY / "pages" / "package-lock.json", tmp_path / "pages")
    tools = tmp_path / ".venv" / "bin"
    tools.mkdir(parents=True)
    for name in ("npm", "node"):
        (tools / name).write_text("#!/bin/sh\nexit 1\n")
        (tools / name).chmod(0o755)
    ended = subprocess.run(
        [tmp_path / "tools" / "check_pages.sh"],
        env={**os.environ, "CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == code
    assert "pages: npm could not download what pages/package-lock.json pins" in ended.stderr
    assert "the pages are not checked" in ended.stderr
