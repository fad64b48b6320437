"""Whether a finder that is killed again and again finds each announced object once, and how many calls that takes.

A producer announces objects in a queue: a share of them twice, all in a random order. A process finds them, as a
supplier task does, and is killed without notice; its next try goes on. What it had received is received again. At the
end, each object must be in exactly one partition, the queue must be empty, and no bucket may have been listed.

With `--acknowledge delivered`, partitions are completed beside the finder, and a message leaves the queue after that.

The queue is MiniStack's, an open engine. It searches all its messages at each call, so the producer keeps it short.
Received messages are hidden for seconds instead of minutes, so that those of a killed process return soon.

Usage: python benchmarks/s3_queue.py [--quick] [--events N] [--kills N] [--acknowledge recorded|delivered]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from botocore.client import BaseClient

from airflow_provider_coordination.aws import AwsSettings, aws_client
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.sources import kept_messages
from airflow_provider_coordination.sources.queues import Queue
from airflow_provider_coordination.sources.s3 import announcements
from airflow_provider_coordination.sources.s3.announcements import AnnouncedObjects
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.stores import StoreSettings, open_store
from tests.support.dynamodb_server import DynamoDbServer
from tests.support.s3_messages import s3_message

EVENTS, QUICK_EVENTS = 1_000_000, 3_000
KILLS, QUICK_KILLS = 50, 2
TWICE = 0.03
"""The share of the objects that are announced twice."""
LONGEST_QUEUE = 4_000
HIDDEN = timedelta(seconds=20)
SHUFFLED = 20_000
"""How many objects are announced in a random order among themselves."""


class Calls:
    """Counts the calls to AWS of this process and of those before it, in a file that survives being killed."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def count(self) -> None:
        """Count all calls of this process from now on."""
        out, make = os.open(self._file, os.O_APPEND | os.O_CREAT | os.O_WRONLY), BaseClient._make_api_call  # type: ignore[attr-defined]

        def counted(client: Any, operation: str, request: Any) -> Any:
            os.write(out, f"{operation}\n".encode())
            return make(client, operation, request)

        BaseClient._make_api_call = counted  # type: ignore[attr-defined]

    @property
    def bytes(self) -> int:
        """The size of the file: about 17 bytes a call."""
        return self._file.stat().st_size if self._file.exists() else 0

    def made(self) -> Counter[str]:
        """Return how often each operation was called."""
        return Counter(self._file.read_text().split())


def coordinator_in(folder: str, owner: str) -> SourceCoordinator:
    """Return a coordinator with the store in a folder."""
    store = open_store(StoreSettings.from_url(f"sqlite:///{folder}/store.db"))
    coordinator = SourceCoordinator(store, "events", owner)
    coordinator.initialize()
    return coordinator


def find(folder: str, url: str, aws: AwsSettings, acknowledge: str, number: int) -> None:
    """Find objects until this process is killed, or a file says that all are announced and the queue is empty."""
    announcements.RECORDING = kept_messages.HIDDEN = announcements.HIDDEN = HIDDEN  # type: ignore[attr-defined]
    Calls(Path(folder, "calls")).count()
    settings = S3Objects(paths=("s3://events/",), queue=url, acknowledge=acknowledge)
    coordinator = coordinator_in(folder, f"host:dag:run:find:-1:{number}:finder")
    queue = Queue(url, aws_client(aws, "sqs"))
    parent = os.getppid()
    while not Path(folder, "done").exists() and os.getppid() == parent:
        coordinator.supply(
            AnnouncedObjects(settings, coordinator, open_queue=lambda _: queue), wait_timeout=timedelta(minutes=1)
        )
        time.sleep(0.2)


def announcements_of(events: int, chosen: random.Random) -> Iterator[str]:
    """Yield the messages: nearly each object once, some twice, in a random order."""
    for start in range(0, events, SHUFFLED):
        numbers = list(range(start, min(start + SHUFFLED, events)))
        numbers += [each for each in numbers if chosen.random() < TWICE]
        chosen.shuffle(numbers)
        for number in numbers:
            yield s3_message(f"{number % 1000:03}/{number:09}.json", bucket="events", etag=f"{number:032x}", size=1000)


def produce(client: Any, url: str, events: int, chosen: random.Random, sent: list[int]) -> None:
    """Send the messages, ten at a time, while the queue is short."""
    batch: list[dict[str, str]] = []
    for body in announcements_of(events, chosen):
        batch.append({"Id": str(len(batch)), "MessageBody": body})
        if len(batch) == 10:
            send(client, url, batch, sent)
            batch = []
    if batch:
        send(client, url, batch, sent)


def send(client: Any, url: str, batch: list[dict[str, str]], sent: list[int]) -> None:
    """Send some messages once the queue has room."""
    while sent[0] % 500 < 10 and sum(waiting(client, url)) > LONGEST_QUEUE:
        time.sleep(0.05)
    client.send_message_batch(QueueUrl=url, Entries=batch)
    sent[0] += len(batch)


def waiting(client: Any, url: str) -> tuple[int, int]:
    """Return how many messages the queue has that can be received, and that are hidden."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    answer = client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return int(answer[names[0]]), int(answer[names[1]])


def deliver(coordinator: SourceCoordinator) -> None:
    """Complete the partitions that are available."""
    for partition in coordinator.leases.acquire(100):
        coordinator.leases.complete(partition.partition_key, {**partition.progress, "is_ended": True})


class Finder:
    """The process that finds objects, in one try after the other."""

    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments
        self._process: BaseProcess | None = None
        self.tries = 0

    def start(self) -> None:
        """Start the next try."""
        self.tries += 1
        arguments = (*self._arguments, self.tries)
        self._process = multiprocessing.get_context("spawn").Process(target=find, args=arguments, daemon=True)
        self._process.start()

    def kill(self) -> None:
        """Kill the try without notice."""
        assert self._process is not None and self._process.pid is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.join()

    def end(self) -> None:
        """Wait for the end of the try."""
        assert self._process is not None
        self._process.join(120)
        assert self._process.exitcode == 0, self._process.exitcode


def run(folder: str, server: DynamoDbServer, events: int, kills: int, acknowledge: str, seed: int) -> dict[str, Any]:
    """Announce and find all objects; return the figures."""
    chosen, client, sent = random.Random(seed), server.sqs_client(), [0]
    url = client.create_queue(QueueName=f"events-{acknowledge}")["QueueUrl"]
    finder = Finder(folder, url, server.settings, acknowledge)
    deliverer = coordinator_in(folder, "host:dag:run:ingest:-1:1:job")
    began = time.perf_counter()
    producer = threading.Thread(target=produce, args=(client, url, events, chosen, sent))
    producer.start()
    finder.start()
    calls = Calls(Path(folder, "calls"))
    between = 2 * 17 * events // 5 // max(kills, 1)
    killed_at = calls.bytes + chosen.randrange(between)
    while producer.is_alive() or any(waiting(client, url)):
        time.sleep(0.1)
        if acknowledge == "delivered":
            deliver(deliverer)
        if finder.tries <= kills and calls.bytes > killed_at:
            finder.kill()
            print(f"  killed {finder.tries} times, {sent[0]:,} messages sent", flush=True)
            killed_at = calls.bytes + chosen.randrange(between)
            finder.start()
    Path(folder, "done").touch()
    finder.end()
    seconds = time.perf_counter() - began
    found = Counter(item["uri"] for each in deliverer.view.partitions() for item in each.progress["items"])
    deliverer.store.close()
    made = calls.made()
    return {
        "events": sent[0],
        "objects": events,
        "kills": finder.tries - 1,
        "acknowledge": acknowledge,
        "lost": events - len(found),
        "doubled": sum(found.values()) - len(found),
        "left_in_queue": sum(waiting(client, url)),
        "list_calls": sum(number for name, number in made.items() if name.startswith("List")),
        "sqs_calls": dict(made),
        "sqs_calls_per_1000_objects": round(made.total() * 1000 / events, 1),
        "objects_per_second": round(events / seconds),
    }


def main() -> None:
    """Run and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_EVENTS:,} objects, {QUICK_KILLS} kills")
    parser.add_argument("--events", type=int, default=EVENTS, help="the number of objects")
    parser.add_argument("--kills", type=int, default=KILLS, help="how often the finder is killed")
    parser.add_argument("--acknowledge", choices=["recorded", "delivered"], default="recorded")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    events, kills = (QUICK_EVENTS, QUICK_KILLS) if options.quick else (options.events, options.kills)
    with DynamoDbServer() as server, tempfile.TemporaryDirectory() as folder:
        figures = run(folder, server, events, kills, options.acknowledge, options.seed)
    print(f"{events:,} objects, {figures['kills']} kills: {figures['lost']} lost, {figures['doubled']} doubled")
    print(json.dumps(figures))
    assert not (figures["lost"] or figures["doubled"] or figures["left_in_queue"] or figures["list_calls"]), figures


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
