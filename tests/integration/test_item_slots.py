"""Spark tasks land items: the number of partitions read at the same time, and the memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from airflow_provider_coordination.sources.items import Item, ItemReader, ReadPage
from airflow_provider_coordination.spark.item_file import READING_BYTES, ItemPlan
from airflow_provider_coordination.spark.item_landing import land_items
from airflow_provider_coordination.spark.job_spark import JobSpark
from airflow_provider_coordination.spark.parquet_files import row_count
from airflow_provider_coordination.spark.slots import LandingOptions
from tests.support.items import named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration
PAGES = 100
"""Of one MiB each."""


def plans(count: int) -> list[ItemPlan]:
    return [
        ItemPlan(
            source_identifier="s|PARTITION",
            partition_key=f"p{n}",
            kind="memory",
            fencing_token=1,
            items=named(f"i{n}"),
            start="",
        )
        for n in range(count)
    ]


def options(folder: Path, memory: int) -> LandingOptions:
    return LandingOptions(root=f"{folder}/landed", seconds=600, max_bytes=2**40, slot_memory_bytes=memory)


@dataclass
class LargeItems(ItemReader):
    """Items of 100 MiB, whose readers note how large their process is."""

    folder: Path

    def read(self, item: Item, position: str) -> Iterator[ReadPage]:
        sizes = []
        for page in range(int(position or 0), PAGES):
            text = pa.array([f"{item['name']}/{page}/{'x' * 2**10}" for _ in range(2**10)])
            sizes.append(self._resident())
            yield ReadPage(pa.table({"data": text}), str(page + 1))
        (self.folder / f"{os.getpid()}.{item['name']}").write_text(f"{min(sizes)} {max(sizes)}")

    def origin(self, item: Item) -> str:
        return str(item["name"])

    @staticmethod
    def _resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_worker_memory_is_independent_of_the_amount_read(spark: SparkSession, tmp_path: Path) -> None:
    rows = land_items(JobSpark("test"), plans(8), LargeItems(tmp_path), options(tmp_path, 2 * READING_BYTES))
    assert [(row.records, row.error) for row in rows] == [(PAGES * 2**10, None)] * 8
    assert sum(row_count(row.file) for row in rows) == 8 * PAGES * 2**10
    assert max(row.memory_bytes for row in rows) <= 2 * READING_BYTES + 4 * 2**20, "two shares, and a page of each"
    noted = [file.name.split(".")[0] for file in tmp_path.iterdir() if file.is_file()]
    assert noted
    for worker in set(noted):
        sizes = [list(map(int, file.read_text().split())) for file in tmp_path.glob(f"{worker}.*")]
        grown = max(most for _, most in sizes) - min(least for least, _ in sizes)
        assert grown < 4 * READING_BYTES, f"{grown / 2**20:.0f} MiB, of {len(sizes) * PAGES} that it read"


@dataclass
class FragileSource(ItemReader):
    """Items of which the source bears one at a time."""

    folder: Path
    reads_at_once: int | None = 1

    def read(self, item: Item, position: str) -> Iterator[ReadPage]:
        with (self.folder / "reading").open("x"):  # fails if there is one
            yield ReadPage(pa.table({"data": [item["name"]]}))
        (self.folder / "reading").unlink()

    def origin(self, item: Item) -> str:
        return str(item["name"])


def test_all_slots_together_respect_the_limit_of_the_source(spark: SparkSession, tmp_path: Path) -> None:
    rows: list[Any] = land_items(
        JobSpark("test"), plans(20), FragileSource(tmp_path), options(tmp_path, 16 * READING_BYTES)
    )
    assert [(row.records, row.error) for row in rows] == [(1, None)] * 20
