"""What `make dist` makes: the same bytes each time, complete, with a README for the package index."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.support.servers import unavailable
from tools import pages
from tools.readme import published

LEFT_OUT = {".ci/run", ".pre-commit-config.yaml"}


def build(source: Path, folder: Path, warning: str = "", **environment: str) -> dict[str, Path]:
    """Build the sdist and the wheel of a folder, without a network; return them by their suffix."""
    command = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "sdist",
        "--target",
        "wheel",
        "--directory",
        folder,
    ]
    result = subprocess.run(
        command, cwd=source, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert warning in result.stderr
    return {path.suffix: path for path in folder.iterdir()}


def bundle() -> set[str]:
    """The files of the pages' bundle, below the repository."""
    return {path.as_posix() for path in pages.made(REPOSITORY)}


def tracked(*patterns: str) -> set[str]:
    """The files under version control, below the repository."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    return {name for name in listed.splitlines() if (REPOSITORY / name).is_file()}


def names(wheel: Path) -> set[str]:
    """The files in a wheel, without its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    try:
        pages.make(REPOSITORY)
    except pages.PagesError as reason:
        unavailable("the bundle of the pages", reason)
    return build(REPOSITORY, tmp_path_factory.mktemp("first"))


@pytest.fixture(scope="module")
def unpacked(built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the sdist unpacks to, which no version control covers."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(built[".gz"]) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python has it since 3.11.4
        archive.extractall(folder)
    return folder / built[".gz"].name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def metadata(built: dict[str, Path]) -> Message:
    with zipfile.ZipFile(built[".whl"]) as wheel:
        [name] = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(wheel.read(name))


def test_second_build_has_the_same_bytes(built: dict[str, Path], tmp_path: Path) -> None:
    again = build(REPOSITORY, tmp_path)
    assert {suffix: path.read_bytes() == built[suffix].read_bytes() for suffix, path in again.items()} == {
        ".gz": True,
        ".whl": True,
    }


def without_node(folder: Path) -> str:
    """A `PATH` on which Node.js and npm fail, as npm does without a network."""
    for name in ("node", "npm"):
        (folder / name).write_text("#!/bin/sh\nexit 1\n")
        (folder / name).chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def test_sdist_builds_the_wheel_of_the_repository(built: dict[str, Path], unpacked: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    again = build(unpacked, tmp_path / "dist", PATH=without_node(tmp_path / "bin"))
    assert again[".whl"].read_bytes() == built[".whl"].read_bytes()


def test_wheel_is_built_without_network_and_pages(built: dict[str, Path], unpacked: Path, tmp_path: Path) -> None:
    source = shutil.copytree(unpacked, tmp_path / "source")
    with (source / pages.SOURCES / "src" / "main.tsx").open("a") as entry:
        entry.write("// newer than the bundle\n")
    (tmp_path / "bin").mkdir()
    warning = "Built without the pages in Airflow's UI: "
    again = build(source, tmp_path / "dist", warning, PATH=without_node(tmp_path / "bin"))
    assert names(built[".whl"]) - names(again[".whl"]) == bundle()


def test_sdist_contains_the_repository(unpacked: Path) -> None:
    assert {name for name in tracked() | bundle() if not (unpacked / name).is_file()} == LEFT_OUT


def test_wheel_contains_packages_manual_monitoring_and_applications(built: dict[str, Path]) -> None:
    expected = tracked("airflow_provider_coordination", "pyspark_coordinated_kinesis")
    expected |= {f"airflow_provider_coordination/manual/{Path(page).name}" for page in tracked("docs/*.md")}
    expected |= {f"airflow_provider_coordination/{application}" for application in tracked("spark_apps")}
    expected |= {f"airflow_provider_coordination/{file}" for file in tracked("monitoring")}
    assert names(built[".whl"]) == expected | bundle()
    assert "airflow_provider_coordination/py.typed" in expected


def test_metadata_names_the_interfaces(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built[".whl"]) as wheel:
        [name] = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
        sections = re.findall(r"^\[(.+)\]$", wheel.read(name).decode(), re.MULTILINE)
    assert set(sections) == {
        "airflow.plugins",
        "airflow_provider_coordination.operators",
        "apache_airflow_provider",
        "console_scripts",
    }


def test_readme_of_the_metadata_has_no_relative_links(metadata: Message) -> None:
    readme = str(metadata.get_payload())
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert readme.startswith("# airflow-provider-coordination\n")
    assert "mermaid" not in readme
    assert [link for link in re.findall(r"\]\(([^)]+)\)", readme) if not link.startswith("https://")] == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (None, "See docs/ui.md, [pip](https://pip.example.com/) and .\n"),
        (
            "https://git.example.com/it/",
            "See [docs/ui.md](https://git.example.com/it/blob/v1.2/docs/ui.md#parked), [pip](https://pip.example.com/) "
            "and ![The page](https://git.example.com/it/raw/v1.2/docs/images/ui.png).\n",
        ),
    ],
)
def test_published_readme_links_to_the_source(source: str | None, expected: str) -> None:
    text = (
        "```mermaid\nflowchart LR\n```\n\n"
        "See [docs/ui.md](docs/ui.md#parked), [pip](https://pip.example.com/) and ![The page](docs/images/ui.png).\n"
    )
    assert published(text, source, "1.2") == expected


@pytest.mark.integration
def test_checkout_installs_with_its_pages_without_node(tmp_path: Path) -> None:
    checkout, programs, environment = tmp_path / "checkout", tmp_path / "bin", tmp_path / "venv"
    for name in tracked():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, checkout / name)
    programs.mkdir()
    for name in ("sh", "env", "git", "uname"):  # the machine's programs without Node.js
        (programs / name).symlink_to(str(shutil.which(name)))
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    install = f". tools/certificates.sh && {environment}/bin/python -m pip install --quiet --no-deps {checkout}"
    ran = subprocess.run(
        ["/bin/sh", "-c", install],
        cwd=REPOSITORY,
        env={**os.environ, "PATH": str(programs)},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode and "Could not find a version that satisfies the requirement hatchling" in ran.stderr:
        unavailable("the package index", ran.stderr)
    assert ran.returncode == 0, ran.stderr
    [first] = environment.glob(f"lib/*/site-packages/{pages.BUNDLE.as_posix()}")
    assert first.stat().st_size > 100_000
    assert len([*first.parent.glob("*Page-*.js")]) > 1
