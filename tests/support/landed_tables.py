"""Landed files that a table takes unchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from airflow_provider_coordination.spark.delivery import Attempt, Delivery
from airflow_provider_coordination.spark.files import MissingFileError
from airflow_provider_coordination.spark.landed_identity import as_landed, file_name, under_token
from airflow_provider_coordination.spark.parquet_files import write_table
from airflow_provider_coordination.spark.sinks import Sink
from airflow_provider_coordination.spark.storage import publish
from tests.support.sinks import (
    DeltaUnderTest,
    IcebergUnderTest,
    SinkTarget,
    SinkUnderTest,
    an_attempt,
    under_next_lease,
)

TABLES: dict[str, SinkUnderTest] = {"delta": DeltaUnderTest(), "iceberg": IcebergUnderTest()}
"""The kinds of sinks that take landed files as data files."""


def land(folder: Path, values: Mapping[str, Sequence[int]], **columns: Sequence[Any]) -> list[Attempt]:
    """Land batches with values of a column `n`; return their first deliveries.

    :param folder: where they are landed.
    :param columns: more columns, for all batches.
    """
    attempts = []
    for batch_id, of_batch in values.items():
        uri = str(folder / "clicks" / batch_id / file_name("TRIM_HORIZON", 1))
        table = pa.table({"n": pa.array(of_batch, pa.int64()), **columns, "_batch_id": [batch_id] * len(of_batch)})
        size = write_table(as_landed(table, batch_id), uri)
        attempts.append(an_attempt(batch_id, file=uri, file_bytes=size, records=len(of_batch)))
    return attempts


@dataclass(frozen=True)
class LandedTable:
    """Landed files, and the table that takes them.

    :param target: the table.
    :param folder: where they are landed.
    """

    target: SinkTarget
    folder: Path

    def land(self, values: Mapping[str, Sequence[int]], **columns: Sequence[Any]) -> list[Attempt]:
        """Land batches; see `land`."""
        return land(self.folder, values, **columns)

    def delivery(self, sink: Sink | None = None) -> Delivery:
        """Return what a new job delivers by."""
        sink = sink or self.target.sink()
        assert sink.accepts_landed_files
        return sink.landed_delivery(keep=False)


def prepare(delivery: Delivery, attempts: Sequence[Attempt]) -> None:
    """Let a delivery prepare batches, each of which it can.

    :raises Exception: if it cannot prepare one of them.
    """
    for result in delivery.prepare(attempts, delivery.sinks).values():
        if isinstance(result, Exception):
            raise result


def deliver(delivery: Delivery, attempts: Sequence[Attempt]) -> None:
    """Deliver batches whole."""
    prepare(delivery, attempts)
    delivery.commit("main", attempts)
    delivery.discard(attempts)


def taken_over(attempt: Attempt, *, rejected: bool = False) -> Attempt:
    """Take a landed file over, as the next owner of its partition does; return the owner's delivery of the batch."""
    again = under_next_lease(attempt, rejected=rejected)
    target = under_token(attempt.file, again.fencing_token)
    try:
        publish(attempt.file, target)
    except MissingFileError:  # another owner took it over already
        assert Path(target).exists()
    return replace(again, file=target)
