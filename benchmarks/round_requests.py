"""The requests to DynamoDB in a round of a job, by the number of its partitions.

One job reads a stream in memory and publishes the landed files; every round finds one record in each partition. Only
the store is real: requests to a DynamoDB engine are counted. The first round, which acquires, and the last one, which
releases, are left out. Leases are long enough that none is renewed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow_provider_coordination.stores import StoreSettings, open_store
from airflow_provider_coordination.stores.kinds.dynamodb import DynamoDbSettings
from tests.support.dynamodb_server import DynamoDbServer
from tests.support.fleet import FakeStream, Fleet

ROUNDS = 4
PARTITIONS = (1, 64, 1000)


def measure(server: DynamoDbServer, partitions: int) -> dict[str, Any]:
    """Return the requests in a round of a job with this number of partitions, as the mean of several rounds."""
    settings = DynamoDbSettings(table=f"round-{partitions}", aws=server.settings)
    store = open_store(StoreSettings.of("dynamodb", settings))
    store.initialize()
    requests, stop, marks = Counter[str](), threading.Event(), list[Counter[str]]()

    def count(event_name: str, **_: object) -> None:
        requests[event_name.rpartition(".")[2]] += 1

    store.inner.client.meta.events.register("before-send.dynamodb", count)  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(FakeStream(partitions), Path(folder), store, ownership_timeout=timedelta(hours=1))
        fleet.stream.send(partitions)

        def observer(phase: str) -> None:
            if phase == "landed":
                marks.append(Counter(requests))
                fleet.stream.send(partitions)
            if len(marks) > ROUNDS:
                stop.set()

        fleet.run(observer, store=store, stop=stop, until_caught_up=False)
    counted = marks[ROUNDS] - marks[0]
    return {
        "requests": round(counted.total() / ROUNDS, 1),
        "operations": {name: round(count / ROUNDS, 2) for name, count in sorted(counted.items())},
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer partitions")
    options = parser.parse_args(arguments)
    with DynamoDbServer() as server:
        figures = {n: measure(server, n) for n in (PARTITIONS[:2] if options.quick else PARTITIONS)}
    print("| partitions | requests a round | requests a partition |\n|--:|--:|--:|")
    for partitions, cost in figures.items():
        each = cost["requests"] / partitions
        print(f"| {partitions} | {cost['requests']:g} | {each:.2f} |")
    print()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
