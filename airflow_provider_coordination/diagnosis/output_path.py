"""Whether a driver on this machine can write an output path, as a delivery does: write, read, rename, delete."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.diagnosis.findings import Finding, error, ok
from airflow_provider_coordination.stores.hiding import without_likely_secrets


def output_findings(path: str) -> Iterator[Finding]:
    """Yield whether a path can be written; nothing is left there.

    :param path: a path or URI.
    """
    from airflow_provider_coordination.spark.storage import absolute, delete_file, join, publish, read_text, write_text

    root = absolute(path)
    was_there = "://" in root or Path(root).exists()
    name = secrets.token_hex(8)
    probe, renamed = join(root, f"_probe.{name}"), join(root, f"_probe.{name}.renamed")
    steps: tuple[tuple[str, Callable[[], object]], ...] = (
        ("write", lambda: write_text(probe, name)),
        ("read", lambda: _same(read_text(probe), name)),
        ("rename", lambda: publish(probe, renamed)),
        ("delete", lambda: delete_file(renamed)),
    )
    try:
        for step, take in steps:
            try:
                take()
            except (CoordinationError, OSError, ValueError) as failure:
                said = without_likely_secrets(" ".join(str(failure).split()))
                remedy = "let the user that Spark's driver runs as write there, or name another path"
                yield error("output", f"{path}: cannot {step} a file: {said}", remedy)
                return
    finally:
        for left in (probe, renamed):
            with suppress(CoordinationError, OSError, ValueError):
                delete_file(left)
        if not was_there:
            with suppress(OSError):
                Path(root).rmdir()
    yield ok("output", f"{path}: a file can be written, read, renamed and deleted from this machine")


def _same(read: str, written: str) -> None:
    if read != written:
        raise OSError("it holds something else than was written")
