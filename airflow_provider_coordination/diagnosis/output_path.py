"""Check of an output path from this machine: write, read, rename and delete a file, as a delivery does."""

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
    """Yield whether a path can be written. The files of the check are deleted.

    :param path: a path or URI.
    :param access: the AWS settings, for a path on S3.
    """
    from airflow_provider_coordination.spark.filesystems import absolute
    from airflow_provider_coordination.spark.storage import (
        PROBES,
        delete_file,
        join,
        new_probe,
        publish,
        read_text,
        remove_if_empty,
        write_text,
    )

    root = absolute(path)
    existed = "://" in root or Path(root).exists()
    name = secrets.token_hex(8)
    probe, renamed = new_probe(root), new_probe(root)
    steps: tuple[tuple[str, Callable[[], object]], ...] = (
        ("write", lambda: write_text(probe, name, access)),
        ("read", lambda: _same(read_text(probe, access), name)),
        ("rename", lambda: publish(probe, renamed, access=access)),
        ("delete", lambda: delete_file(renamed, access)),
    )
    try:
        for step, run in steps:
            try:
                run()
            except (CoordinationError, OSError, ValueError) as failure:
                message = without_likely_secrets(" ".join(str(failure).split()))
                remedy = "grant write access to the user that runs Spark's driver, or use another path"
                yield error("output", f"{path}: cannot {step} a file: {message}", remedy)
                return
    finally:
        for left in (probe, renamed):
            with suppress(CoordinationError, OSError, ValueError):
                delete_file(left, access)
        with suppress(OSError, CoordinationError, ValueError):
            remove_if_empty(join(root, PROBES), access)
        if not existed:
            with suppress(OSError):
                Path(root).rmdir()
    yield ok("output", f"{path}: a file can be written, read, renamed and deleted from this machine")


def _same(read: str, written: str) -> None:
    if read != written:
        raise OSError("its content differs from what was written")
