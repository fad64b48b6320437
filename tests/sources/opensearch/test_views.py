"""Each cluster is asked how its slices can be viewed."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from airflow_provider_coordination.sources.opensearch.kind import OpenSearchIndices
from airflow_provider_coordination.sources.opensearch.views import Views


class SlowCluster:
    """Answers which version it has once another cluster is asked too."""

    def __init__(self, asked: threading.Barrier) -> None:
        self._asked = asked

    def json(self, *args: object, **options: object) -> dict[str, Any]:
        self._asked.wait()
        return {"version": {"distribution": "opensearch", "number": "1.0.0"}}


def test_slow_cluster_does_not_block_another() -> None:
    both = threading.Barrier(2, timeout=60)

    def looked(cluster: Any) -> str:
        settings = OpenSearchIndices("*")
        with Views(cluster, settings).of({"index": "clicks", "slice": 0, "slices": 1}, -1) as view:
            return type(view).__name__

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(looked, [SlowCluster(both), SlowCluster(both)])) == ["_Scroll", "_Scroll"]
