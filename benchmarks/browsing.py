"""How long a page takes that a person looks at, with a million partitions.

One store of each kind is filled as `acquire_scale.py` fills it: half of the partitions completed, an eighth leased, an
eighth closed, a quarter available; none failed, so that who looks for failures finds none. Then pages of a hundred are
read, each kind of page in turn, so that whatever else the machine does hits all alike:

- *first*: by key, without a filter; and of one status, oldest first.
- *deep*: the page behind nine tenths of all, forwards and backwards.
- *filtered*: of one status by key; of one owner.
- *prefix*: whose keys begin with something.
- *nothing found*: a search that finds nothing, by key and in one status; failures, of which there are none. Such a
  page looks at 20,000 partitions and says where to go on.

One partition is read by its key beside them: what that takes is the machine's and the driver's, and no page is faster.

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

from airflow_provider_coordination.coordination.browsing import Browsed, Filter, Order, Place, place_of
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.coordination.store import CoordinationStore
from benchmarks.acquire_scale import FAMILY, FILL_CHUNK, SERVERS, Server, new

PAGE = 100
AIM_MS = 300
SIZES = {"sqlite": 1_000_000, "postgresql": 1_000_000, "mariadb": 1_000_000, "dynamodb": 50_000}
QUICK = {"sqlite": 50_000, "postgresql": 50_000, "mariadb": 20_000, "dynamodb": 5_000}
WAITING, COMPLETED = (Filter(statuses=(status,)) for status in (PartitionStatus.UNASSIGNED, PartitionStatus.COMPLETED))
BY_KEY, BY_AGE = Order.KEY, Order.PRIORITY
Look = Callable[[], Browsed]
COMPARED = "one partition by its key"


def fill(store: CoordinationStore, size: int) -> None:
    """Create the partitions."""
    store.initialize()
    now = datetime.now(UTC)
    numbers = iter(range(size))
    while chunk := [new(number, now) for number in itertools.islice(numbers, FILL_CHUNK)]:
        assert len(store.create(chunk)) == len(chunk)


def pages(store: CoordinationStore, size: int) -> dict[str, Look]:
    """Return what is timed, by name."""

    def look(wanted: Filter, order: Order = BY_KEY, *, after: Place | None = None, descending: bool = False) -> Look:
        return lambda: store.browse(FAMILY, wanted, order=order, after=after, descending=descending, limit=PAGE)

    now = datetime.now(UTC)
    number = size * 9 // 10
    key = new(number, now).partition_key
    deep = Place("", key)
    waiting = store.get(FAMILY, new(number - number % 8 + 6, now).partition_key)
    assert waiting is not None
    assert waiting.status is PartitionStatus.UNASSIGNED
    by_age = place_of(waiting, BY_AGE)

    def one() -> Browsed:
        partition = store.get(FAMILY, key)
        assert partition is not None
        return Browsed(partitions=[partition], next=None)

    return {
        COMPARED: one,
        "first": look(Filter()),
        "first of a status, by age": look(WAITING, BY_AGE),
        "deep": look(Filter(), after=deep),
        "deep, backwards": look(Filter(), after=deep, descending=True),
        "deep of a status, by age": look(WAITING, BY_AGE, after=by_age),
        "filtered by status": look(WAITING),
        "filtered by owner": look(Filter(owner="another")),
        "prefix": look(Filter(prefix=key[:-12])),
        "nothing found: search": look(Filter(search="no such key")),
        "nothing found: search, deep": look(Filter(search="no such key"), after=deep),
        "nothing found: search of a status, by age": look(Filter(search="none", statuses=COMPLETED.statuses), BY_AGE),
        "nothing found: failures": look(Filter(failing=True)),
    }


def measure(server: Server, size: int, rounds: int) -> dict[str, list[float]]:
    """Return the seconds that each kind of page took, round by round."""
    store = server.open("browsing")
    fill(store, size)
    server.settle()
    looks = pages(store, size)
    seconds: dict[str, list[float]] = {name: [] for name in looks}
    for number in range(-1, rounds):  # the first round warms up
        for name, look in looks.items():
            start = time.perf_counter()
            found = look()
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
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer partitions, fewer rounds")
    parser.add_argument("--stores", default=",".join(SERVERS), help="which; default all")
    parser.add_argument("--rounds", type=int, help="looks at each kind of page; default 40, 10 with --quick")
    parser.add_argument("--largest", type=int, help="no store has more partitions")
    options = parser.parse_args(arguments)
    rounds = options.rounds or (10 if options.quick else 40)
    sizes = QUICK if options.quick else SIZES
    measured, filled = {}, {}
    for name in options.stores.split(","):
        filled[name] = min(sizes[name], options.largest or sizes[name])
        with SERVERS[name]() as server:
            measured[name] = measure(server, filled[name], rounds)
    held = ", ".join(f"{name} {size:,}" for name, size in filled.items())
    print(f"Partitions: {held}. Medians of {rounds} looks, in brackets the 95th percentile:\n")
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
