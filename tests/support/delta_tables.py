"""Delta tables in tests: their rows, the changes of other writers, and the numbered calls of one job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from deltalake import DeltaTable
from deltalake.table import TableAlterer, TableOptimizer

from airflow_provider_coordination.spark.sinks.delta import log
from tests.support.freezing import Calls


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """Return what a reader sees."""
    rows: list[dict[str, Any]] = DeltaTable(folder).to_pyarrow_table().to_pylist()
    return rows


def batches_in(folder: Path) -> dict[str, list[int]]:
    """Return the values of `n` by batch id, 0 where there is no such column; nothing if there is no table."""
    found: dict[str, list[int]] = {}
    for row in rows_in(folder) if DeltaTable.is_deltatable(str(folder)) else ():
        found.setdefault(row["_batch_id"], []).append(row.get("n") or 0)
    return {batch_id: sorted(values) for batch_id, values in found.items()}


@contextmanager
def others_commit_first(change: Callable[[], None], *, times: int = 1) -> Iterator[list[int]]:
    """Let somebody change the table after a job looked at it and before it commits; yield the numbers of its tries."""
    tries = [0]

    def late(commit: Callable[..., None]) -> Callable[..., None]:
        def made(*details: Any, **more: Any) -> None:
            tries[0] += 1
            if tries[0] <= times:
                change()
            commit(*details, **more)

        return made

    with (
        patch.object(DeltaTable, "create_write_transaction", late(DeltaTable.create_write_transaction)),
        patch.object(log, "write_deltalake", late(log.write_deltalake)),
    ):
        yield tries


@contextmanager
def counted_tables(calls: Calls) -> Iterator[None]:
    """Let every call to tables count, as `counted_files` does with those to files."""

    def counted(what: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def made(*details: Any, **more: Any) -> Any:
            return calls.make(f"table.{what}", lambda: call(*details, **more), lambda: OSError(5, f"{what} failed"))

        return made

    with ExitStack() as stack:
        for place, name in (
            (log.TableLog, "open"),
            (log.TableLog, "create"),
            (log, "write_deltalake"),
            (log, "merge"),
            (DeltaTable, "create_write_transaction"),
            (DeltaTable, "vacuum"),
            (TableAlterer, "add_columns"),
            (TableOptimizer, "compact"),
        ):
            stack.enter_context(patch.object(place, name, counted(name, getattr(place, name))))
        yield
