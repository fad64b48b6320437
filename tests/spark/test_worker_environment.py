"""The Python workers of a job have the intended environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from airflow_provider_coordination.spark.job_spark import WORKER_ENVIRONMENT, set_worker_environment

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


@pytest.fixture
def context(spark: SparkSession) -> Iterator[SparkContext]:
    """Gives the context; its environment is as before afterwards."""
    before = dict(spark.sparkContext.environment)
    yield spark.sparkContext
    spark.sparkContext.environment.clear()
    spark.sparkContext.environment.update(before)


def test_worker_keeps_memory_for_the_next_page(context: SparkContext) -> None:
    set_worker_environment(context)
    ((environment, pool),) = (
        context.parallelize([0], 1).map(lambda _: (dict(os.environ), pa.default_memory_pool().backend_name)).collect()
    )
    assert {name: environment.get(name) for name in WORKER_ENVIRONMENT} == WORKER_ENVIRONMENT
    assert pool == "system"


def test_variable_set_by_the_user_stays(context: SparkContext) -> None:
    context.environment["MALLOC_ARENA_MAX"] = "7"  # as `spark.executorEnv.MALLOC_ARENA_MAX` does
    set_worker_environment(context)
    assert context.environment == {**WORKER_ENVIRONMENT, **context.environment, "MALLOC_ARENA_MAX": "7"}
