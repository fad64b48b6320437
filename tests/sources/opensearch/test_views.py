"""Each cluster is asked how its slices can be viewed."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from airflow_provider_coordination.sources.opensearch.kind import OpenSearchIndices
from airflow_provider_coordination.sources.opensearch.slices import Views
from tests.support.waiting import PATIENCE_SECONDS


class SlowCluster:
    """Answers which version it has once another cluster is asked too."""

    def __init__(self, asked: threading.Barrier) -> None:
        self._asked = asked

    def json(self, *args: object, **options: object) -> dict[str, Any]:
        self._asked.wait()
        return {"version": {"distribution": "opensearch", "number": "1.0.0"}}


def test_slow_cluster_does_not_block_another() -> None:
    both = threading.Barrier(2, timeout=PATIENCE_SECONDS)

    def has_point_in_time(cluster: Any) -> bool:
        return Views(cluster, OpenSearchIndices("*")).has_point_in_time()

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(has_point_in_time, [SlowCluster(both), SlowCluster(both)])) == [False, False]
