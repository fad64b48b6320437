from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from demo.local_kinesis import LocalKinesis
from tests.support.spark_job import MakePipeline, Pipeline


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest test, so that the others run beside it in the other process."""
    items.sort(key=lambda item: item.path.name != "test_soak.py")


@pytest.fixture
def make_pipeline(
    kinesis: LocalKinesis, kinesis_stream: Callable[[int], str], java: str, tmp_path: Path
) -> Iterator[MakePipeline]:
    """Makes a pipeline over a new stream of so many shards, with a SQLite store of its own; ends what it still runs."""
    made: list[Pipeline] = []

    def make(shards: int) -> Pipeline:
        made.append(Pipeline(kinesis, kinesis_stream(shards), tmp_path, f"sqlite:///{tmp_path}/coordination.db"))
        return made[-1]

    yield make
    for job in (job for pipeline in made for job in pipeline.jobs):
        job.kill()
