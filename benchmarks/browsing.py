"""How long it takes to read a page of partitions for the UI, with a million partitions.

One store of each kind is filled as in `acquire_scale.py`: half of the partitions completed, an eighth leased, an eighth
closed, a quarter available. None has failed, so a filter for failures finds nothing. Pages of a hundred are read, each
kind of page in turn, so that other load on the machine affects all alike:

- *first*: by key, without a filter; and of one status, oldest first.
- *deep*: the page after nine tenths of all partitions, forwards and backwards.
- *filtered*: of one status by key; of one owner.
- *prefix*: keys with a prefix.
- *nothing found*: a search without a result, by key and in one status; failures, of which there are none. Such a page
  reads 20,000 partitions and returns the position to continue from.

For comparison, one partition is read by its key: the minimum for this machine and driver.

Everything runs on this machine, in temporary directories, as in `acquire_scale.py`.

Usage: python benchmarks/browsing.py [--quick] [--stores sqlite,postgresql,mariadb,dynamodb]
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from airflow_provider_coordination.coordination.browsing import (
    BrowsePage,
    BrowsePosition,
    Filter,
    PageRequest,
    SortOrder,
    position_of,
)
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.coordination.store import CoordinationStore
from benchmarks.acquire_scale import FAMILY, FILL_CHUNK, SERVERS, Server, new

PAGE = 100
AIM_MS = 300
SIZES = {"sqlite": 1_000_000, "postgresql": 1_000_000, "mariadb": 1_000_000, "dynamodb": 50_000}
QUICK = {"sqlite": 50_000, "postgresql": 50_000, "mariadb": 20_000, "dynamodb": 5_000}
WAITING, COMPLETED = (Filter(statuses=(status,)) for status in (PartitionStatus.UNASSIGNED, PartitionStatus.COMPLETED))
BY_KEY, BY_AGE = SortOrder.KEY, SortOrder.PRIORITY
ReadPage = Callable[[], BrowsePage]
COMPARED = "one partition by its key"


def fill(store: CoordinationStore, size: int) -> None:
    """Create the partitions."""
    store.initialize()
    now = datetime.now(UTC)
    numbers = iter(range(size))
    while chunk := [new(number, now) for number in itertools.islice(numbers, FILL_CHUNK)]:
        assert len(store.create(chunk)) == len(chunk)


def pages(store: CoordinationStore, size: int) -> dict[str, ReadPage]:
    """Return the reads that are timed, by name."""

    def read(
        wanted: Filter, order: SortOrder = BY_KEY, *, after: BrowsePosition | None = None, descending: bool = False
    ) -> ReadPage:
        return lambda: store.browse(
            PageRequest(
                source_identifier=FAMILY, wanted=wanted, order=order, after=after, descending=descending, limit=PAGE
            )
        )

    now = datetime.now(UTC)
    number = size * 9 // 10
    key = new(number, now).partition_key
    deep = BrowsePosition("", key)
    waiting = store.get(FAMILY, new(number - number % 8 + 6, now).partition_key)
    assert waiting is not None
    assert waiting.status is PartitionStatus.UNASSIGNED
    by_age = position_of(waiting, BY_AGE)

    def one() -> BrowsePage:
        partition = store.get(FAMILY, key)
        assert partition is not None
        return BrowsePage(partitions=[partition], next=None)

    return {
        COMPARED: one,
        "first": read(Filter()),
        "first of a status, by age": read(WAITING, BY_AGE),
        "deep": read(Filter(), after=deep),
        "deep, backwards": read(Filter(), after=deep, descending=True),
        "deep of a status, by age": read(WAITING, BY_AGE, after=by_age),
        "filtered by status": read(WAITING),
        "filtered by owner": read(Filter(owner="another")),
        "prefix": read(Filter(prefix=key[:-12])),
        "nothing found: search": read(Filter(search="no such key")),
        "nothing found: search, deep": read(Filter(search="no such key"), after=deep),
        "nothing found: search of a status, by age": read(Filter(search="none", statuses=COMPLETED.statuses), BY_AGE),
        "nothing found: failures": read(Filter(failing=True)),
    }


def measure(server: Server, size: int, rounds: int) -> dict[str, list[float]]:
    """Return the seconds that each kind of page took, round by round."""
    store = server.open("browsing")
    fill(store, size)
    server.settle()
    reads = pages(store, size)
    seconds: dict[str, list[float]] = {name: [] for name in reads}
    for number in range(-1, rounds):  # the first round warms up
        for name, read in reads.items():
            start = time.perf_counter()
            found = read()
            took = time.perf_counter() - start
            assert bool(found.partitions) != name.startswith("nothing")
            if number >= 0:
                seconds[name].append(took)
    store.close()
    return seconds


def p95(seconds: Sequence[float]) -> float:
    """Return the 95th percentile."""
    return statistics.quantiles(seconds, n=100, method="inclusive")[94]


def table(measured: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """Return the table in Markdown: median and 95th percentile."""
    names = list(measured)
    lines = [f"| page of {PAGE} | {' | '.join(names)} |", "|---|" + "--:|" * len(names)]
    for page in next(iter(measured.values())):
        cells = [f"{statistics.median(s[page]) * 1e3:.1f} ({p95(s[page]) * 1e3:.1f}) ms" for s in measured.values()]
        lines.append(f"| {page} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer partitions, fewer rounds")
    parser.add_argument("--stores", default=",".join(SERVERS), help="the stores; default all")
    parser.add_argument("--rounds", type=int, help="reads of each kind of page; default 40, 10 with --quick")
    parser.add_argument("--largest", type=int, help="the maximum number of partitions of a store")
    options = parser.parse_args(arguments)
    rounds = options.rounds or (10 if options.quick else 40)
    sizes = QUICK if options.quick else SIZES
    measured, filled = {}, {}
    for name in options.stores.split(","):
        filled[name] = min(sizes[name], options.largest or sizes[name])
        with SERVERS[name]() as server:
            measured[name] = measure(server, filled[name], rounds)
    held = ", ".join(f"{name} {size:,}" for name, size in filled.items())
    print(f"Partitions: {held}. Medians of {rounds} reads, with the 95th percentile in brackets:\n")
    print(table(measured))
    print()
    figures = {
        "partitions": filled,
        "median_ms": {n: {p: round(statistics.median(s) * 1e3, 1) for p, s in m.items()} for n, m in measured.items()},
        "p95_ms": {n: {p: round(p95(s) * 1e3, 1) for p, s in m.items()} for n, m in measured.items()},
        "slowest_p95_to_aim": {n: round(max(map(p95, m.values())) * 1e3 / AIM_MS, 2) for n, m in measured.items()},
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
