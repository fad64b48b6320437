"""Functions of `ForeachBatch` by the recipes of the manual."""

from __future__ import annotations

import os
from collections.abc import Sequence

from pyspark.sql import DataFrame


def by_batch(rows: DataFrame, batch_ids: Sequence[str]) -> None:
    """Write each batch to a folder of its own, in place of what is there: exactly once, however often it comes."""
    for batch_id in batch_ids:
        rows.where(rows["_batch_id"] == batch_id).write.mode("overwrite").parquet(
            f"{os.environ['PUBLISHED']}/{batch_id}"
        )
