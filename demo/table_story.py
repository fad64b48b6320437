"""The course of the demo of a DynamoDB table that is followed into a table of the lake, deletes included."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, ClassVar

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from rich.console import Console

from airflow_provider_coordination.coordination.override import override
from demo.course import AIRFLOW_POLL_SECONDS, Course
from demo.crash import Crash
from demo.events import Event
from demo.observation import ProgressLines, counted, worker_name
from demo.report import BAD, GOOD, DemoReport, Row, checked_row, phase_rows, show_rows
from tests.support.dynamodb_server import create_streamed_table

DAG = "dynamodb_follow_ingestion"
TABLE = "flights"
WORKERS = 1
PUT_AT_ONCE = 25
DELETES = 4
"""One change in this many deletes an item, and one puts a new item; the others change an item."""
FLOW_SECONDS = 60.0
"""How long the changes take."""


@dataclass(frozen=True, kw_only=True)
class TableComparison:
    """The comparison of the table of the lake with the DynamoDB table.

    :param items: the number of items in DynamoDB.
    :param rows: the number of rows in the lake.
    :param missing: the number of items without a row.
    :param deleted: the number of rows whose item is deleted, or never was.
    :param differing: the number of rows that are not as their item.
    :param doubled: the number of additional rows of an item.
    """

    items: int
    rows: int
    missing: int
    deleted: int
    differing: int
    doubled: int

    @classmethod
    def of(cls, items: Mapping[int, Any], rows: Sequence[str]) -> TableComparison:
        """Compare items with the new images of rows, as JSON."""
        found: dict[int, Any] = {}
        for row in rows:
            item = json.loads(row)
            found[item["event_id"]] = item
        common = items.keys() & found.keys()
        return cls(
            items=len(items),
            rows=len(rows),
            missing=len(items) - len(common),
            deleted=len(found) - len(common),
            differing=sum(items[number] != found[number] for number in common),
            doubled=len(rows) - len(found),
        )


class Changes:
    """Changes items of a table on a separate thread: some are put, some are deleted, most are changed.

    :param client: a DynamoDB client.
    :param events: the events that are items; half of them exist at the start.
    :param seconds: how long the changes take at least.
    """

    def __init__(self, client: Any, events: Sequence[Event], *, seconds: float = FLOW_SECONDS) -> None:
        self._client = client
        self._seconds = seconds
        self._items = [json.loads(event.data, parse_float=str) for event in events]
        self._serialize = TypeSerializer().serialize
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="changes", daemon=True)
        self.made = self.deleted = 0
        self.error: Exception | None = None

    def put_items(self) -> int:
        """Put the items that exist at the start; return their number."""
        waiting = iter(self._items[: len(self._items) // 2])
        count = 0
        while some := list(islice(waiting, PUT_AT_ONCE)):
            requests = [{"PutRequest": {"Item": self._item(item)}} for item in some]
            left = self._client.batch_write_item(RequestItems={TABLE: requests})["UnprocessedItems"]
            assert not left, "the server never throttles"
            count += len(some)
        return count

    def start(self) -> None:
        """Start to change items."""
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether all changes are made."""
        return self._thread.ident is not None and not self._thread.is_alive()

    def stop(self) -> None:
        """Stop, and wait for the end of the thread. Harmless if it has ended, or never started."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _item(self, item: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._serialize(value) for name, value in item.items()}

    def _run(self) -> None:
        try:
            self._make_all()
        except Exception as error:  # reported by the demo, which reads it
            self.error = error

    def _make_all(self) -> None:
        chance = random.Random(0)
        new = iter(self._items[len(self._items) // 2 :])
        known = self._items[: len(self._items) // 2]
        count = len(self._items) // 2
        began = time.monotonic()
        for number in range(count):
            kind = chance.randrange(DELETES)
            item = chance.choice(known)
            if kind == 0:
                self._client.delete_item(TableName=TABLE, Key=self._item({"event_id": item["event_id"]}))
                self.deleted += 1
            elif kind == 1:
                known.append(next(new))
                self._client.put_item(TableName=TABLE, Item=self._item(known[-1]))
            else:
                item["changes"] = item.get("changes", 0) + 1
                self._client.put_item(TableName=TABLE, Item=self._item(item))
            self.made += 1
            if self._stopped.wait(max(0.0, began + self._seconds * number / count - time.monotonic())):
                return


@dataclass(frozen=True, kw_only=True)
class TableReport(DemoReport):
    """The results of one run of the demo of a table.

    :param items_put: the number of items before the first read.
    :param changes: the number of changes after that.
    :param deletes: the number of deletes among them.
    :param table: the comparison of both tables.
    :param crash: the killed job.
    :param takeover_seconds: the time from the kill until other jobs had taken over all its leases.
    :param dag_state: the final state of the DAG run.
    :param tries: the number of tries of each Spark task, by task number.
    :param phases: the duration of each phase, in seconds.
    """

    items_put: int
    changes: int
    deletes: int
    table: TableComparison
    crash: Crash
    takeover_seconds: float
    dag_state: str
    tries: Mapping[int, int]
    phases: Mapping[str, float]

    @property
    @override
    def verdict(self) -> str:
        return f"{self.table.rows:,} rows, each as its item in DynamoDB; {self.deletes:,} deletes arrived."

    @override
    def faults(self) -> list[str]:
        table = self.table
        found = {
            f"{table.missing:,} items are missing": table.missing,
            f"{table.deleted:,} rows have no item": table.deleted,
            f"{table.differing:,} rows differ from their items": table.differing,
            f"{table.doubled:,} rows are doubled": table.doubled,
            f"the DAG run ended as {self.dag_state!r}, not as 'success'": self.dag_state != "success",
            "the job was not in the middle of a round when it was killed": not self.crash.batches,
            "Airflow did not retry the killed task": max(self.tries.values(), default=0) < 2,
        }
        return [fault for fault, is_so in found.items() if is_so]

    @override
    def to_mapping(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "tries": {str(task): tries for task, tries in self.tries.items()},
            "faults": self.faults(),
        }

    @override
    def show(self, console: Console) -> None:
        show_rows(console, self._rows())

    def _rows(self) -> list[Row]:
        table = self.table
        return [
            ("items before the first read", f"{self.items_put:,}", None),
            ("changes while it was followed", f"{self.changes:,}, of which {self.deletes:,} are deletes", None),
            ("items in DynamoDB at the end", f"{table.items:,}", None),
            ("rows in the lake", f"{table.rows:,}", None),
            checked_row("missing", table.missing),
            checked_row("deleted, but still there", table.deleted),
            checked_row("different from DynamoDB", table.differing),
            checked_row("doubled", table.doubled),
            ("DAG run", self.dag_state, GOOD if self.dag_state == "success" else BAD),
            ("killed", f"{worker_name(self.crash.owner)} with its {self.crash.processes} processes", None),
            (
                "takeover",
                f"{self.takeover_seconds:.1f} s for its {counted(len(self.crash.partitions), 'partition')}",
                None,
            ),
            *phase_rows(self.phases),
        ]


@dataclass(kw_only=True)
class TableStory(Course):
    """One run. See `Course` for the other parameters.

    :param client: a DynamoDB client of the server.
    :param changes: what changes items; not started.
    :param output: the path of the table of the lake.
    :param rows: returns the new images in the table of the lake, as JSON.
    :param reader: the library that reads it back.
    """

    dag: ClassVar[str] = DAG
    workers: ClassVar[int] = WORKERS

    client: Any
    changes: Changes
    output: str
    rows: Callable[[], Sequence[str]]
    reader: str

    @override
    def run(self) -> TableReport:
        with ProgressLines(self._progress, self.say):
            with self._phase("Airflow starts, the table gets its first items"):
                create_table(self.client)
                items = self.changes.put_items()
                self.say(f"table {TABLE} has {items:,} items, and its stream is on")
                self._until("Airflow is ready", lambda: self.airflow.is_ready(self.dag), AIRFLOW_POLL_SECONDS)
            with self._phase("the first DAG run reads the items and follows the changes"):
                self.run_id = self.airflow.trigger(self.dag, {"table": TABLE, "output_path": self.output})
                self._until("the job holds leases", lambda: len(self.observation.leases()) >= WORKERS)
                self.changes.start()
                self._until("the items are delivered", lambda: len(self.rows()) > 0, AIRFLOW_POLL_SECONDS)
                self._until("changes are delivered", self._has_changes, AIRFLOW_POLL_SECONDS)
            with self._phase("the job is killed in the middle of a round"):
                crash = self._kill()
            with self._phase("Airflow starts it again, and it takes over"):
                takeover_seconds = self._take_over(crash)
            with self._phase("all changes are made, the DAG run ends"):
                self._until("all changes are made", lambda: self.changes.is_done, run_may_end=True)
                self._until("the DAG run ends", self._is_finished, AIRFLOW_POLL_SECONDS, run_may_end=True)
        state, tries = self.airflow.state(self.dag, self.run_id), self._tries()
        with self._phase("everything is stopped, both tables are compared"):
            self.airflow.stop()
            rows = self.rows()
            table = TableComparison.of(all_items(self.client), rows)
            self.say(f"read back by {self.reader}: {len(rows):,} rows")
        return TableReport(
            items_put=items,
            changes=self.changes.made,
            deletes=self.changes.deleted,
            table=table,
            crash=crash,
            takeover_seconds=takeover_seconds,
            dag_state=state,
            tries=tries,
            phases=self.phases,
        )

    def _has_changes(self) -> bool:
        return any('"changes"' in row for row in self.rows())

    @property
    @override
    def failure(self) -> Exception | None:
        return self.changes.error

    @override
    def _progress(self) -> str:
        return f"changes {self.changes.made:>7,}   {self.observation.line('rows in the lake')}"


def create_table(client: Any) -> None:
    """Create the table, with its stream."""
    create_streamed_table(client, TABLE, keys=("event_id",), key_type="N")


def all_items(client: Any) -> dict[int, Any]:
    """Return the items of the table by their key, as JSON has them."""
    read = TypeDeserializer().deserialize
    found = {}
    for page in client.get_paginator("scan").paginate(TableName=TABLE, ConsistentRead=True):
        for item in page["Items"]:
            plain = json.loads(json.dumps({name: read(value) for name, value in item.items()}, default=float))
            found[int(plain["event_id"])] = plain
    return found
