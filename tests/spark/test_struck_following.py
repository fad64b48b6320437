"""The hand-over from a history to its stream is struck at each call to the store, the table, the stream and files.

The victim syncs the table and makes the first rounds of a job, while items change. Its successor goes on when the
victim died, or while it stands still; then the victim goes on. The merged rows are the table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.sources.dynamodb_streams.client import StreamsClient
from airflow_provider_coordination.sources.items import SourceUnavailableError
from airflow_provider_coordination.sources.kinesis.client import KinesisUnavailableError
from tests.spark.test_followed_tables import check, settle
from tests.support.depth import each_or_every
from tests.support.followed_table import FollowedTable
from tests.support.freezing import Strike
from tests.support.history import STREAM
from tests.support.striking import STRIKES, calls_of, counted_client, counted_store, strike_at

ROUNDS = 5
EVERY = 60
"""A run without `--deep` strikes one of this number of calls."""
RESET = "connection reset"


class HandOver(FollowedTable):
    """A table that is followed by a victim, then by a successor."""

    segments = 2
    page_items = 3

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._at_victim: Any = lambda store: store
        self.clock.advance(90)

    def as_reached(self, store: Any) -> Any:
        return self._at_victim(store)

    def by_victim(self) -> None:
        streams, tables = (
            counted_client(super(HandOver, self).connected(name), KinesisUnavailableError(RESET))
            for name in ("dynamodbstreams", "dynamodb")
        )
        self.client = StreamsClient(streams, tables, view_type="NEW_IMAGE", sleep=self.clock.sleep)
        table = counted_client(super().connected("dynamodb"), SourceUnavailableError(RESET))
        self._at_victim = counted_store
        self.table_client = table
        with self.reached():
            self.sync_of(self.coordinator("sync", counted_store(self.store))).run([STREAM], forced=True)
        worker = self.start()
        for number in range(ROUNDS):
            self.change(number)
            self.clock.advance(12)
            with self.without_spark():
                for renewable in worker.job.renewables:
                    renewable.renew_due()
                worker.job.round()
        with self.without_spark():
            worker.job.finish()
            worker.job.give_back()

    def connected(self, name: str) -> Any:
        return getattr(self, "table_client", None) or super().connected(name)

    def change(self, number: int) -> None:
        """Change, delete and create items, and roll a shard."""
        self.put(number)
        self.remove(number)
        self.put(number + 8)
        if number == 1:
            self.split(0)

    def by_successor(self) -> None:
        self._at_victim = lambda store: store
        self.workers.clear()
        self.clock.advance(200)
        self.sync()
        self.change(ROUNDS)
        self.settle()


@pytest.mark.deep
@pytest.mark.integration
@pytest.mark.parametrize("strike", STRIKES)
def test_struck_hand_over_leaves_the_table(strike: Strike, tmp_path: Path) -> None:
    calls = calls_of(HandOver(tmp_path / "none"))
    assert {"source.scan", "source.get_records", "store.create", "store.transact"} <= set(calls)
    for point in each_or_every(EVERY, len(calls), strike):
        story = HandOver(tmp_path / str(point))
        struck = strike_at(point, strike, story, may_end_before=True)
        settle(story)
        try:
            check(story)
        except AssertionError as error:
            raise AssertionError(f"{struck}: {error}") from error
