"""Whether a driver on this machine can write an output path, as a delivery does: write, read, rename, delete."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.diagnosis.findings import Finding, error, ok
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.stores.redaction import without_likely_secrets


def output_findings(path: str, access: Access = DEFAULT_ACCESS) -> Iterator[Finding]:
    """Yield whether a path can be written; nothing is left there.

    :param path: a path or URI.
    :param access: how it is reached, where it is on S3.
    """
    from airflow_provider_coordination.spark.filesystems import absolute
    from airflow_provider_coordination.spark.storage import (
        PROBES,
        delete_file,
        join,
        probe_in,
        publish,
        read_text,
        remove_if_empty,
        write_text,
    )

    root = absolute(path)
    was_there = "://" in root or Path(root).exists()
    name = secrets.token_hex(8)
    probe, renamed = probe_in(root), probe_in(root)
    steps: tuple[tuple[str, Callable[[], object]], ...] = (
        ("write", lambda: write_text(probe, name, access)),
        ("read", lambda: _same(read_text(probe, access), name)),
        ("rename", lambda: publish(probe, renamed, access=access)),
        ("delete", lambda: delete_file(renamed, access)),
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
                delete_file(left, access)
        with suppress(OSError, CoordinationError, ValueError):
            remove_if_empty(join(root, PROBES), access)
        if not was_there:
            with suppress(OSError):
                Path(root).rmdir()
    yield ok("output", f"{path}: a file can be written, read, renamed and deleted from this machine")


def _same(read: str, written: str) -> None:
    if read != written:
        raise OSError("it holds something else than was written")
