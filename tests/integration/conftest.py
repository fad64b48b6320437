"""Fixtures of integration tests with Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.landed_batches import LandedBatches


@pytest.fixture
def batches(spark: SparkSession, tmp_path: Path) -> LandedBatches:
    """Return batches that are landed, and delivered by Spark."""
    return LandedBatches(spark, tmp_path)
