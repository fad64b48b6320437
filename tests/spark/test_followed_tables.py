"""Tables that are followed: what a merging sink holds is the table, whatever happens in between."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.coordination.supplier import Page
from airflow_provider_coordination.sources.kinds import SourceBatches, get_kind, landed_progress
from airflow_provider_coordination.sources.kinesis.stream_names import StreamService
from airflow_provider_coordination.sources.reset import Resets
from airflow_provider_coordination.sources.reset_targets import ResetStep, parse_target
from airflow_provider_coordination.spark.stop_conditions import EndRequests
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.spark.test_change_histories import happen
from tests.support.depth import examples
from tests.support.dynamodb_streams import client_of
from tests.support.fleet import PHASES
from tests.support.followed_table import FollowedTable, merged

NUMBERS = st.integers(0, 11)
ACTIONS = st.one_of(
    st.tuples(st.sampled_from(["put", "remove"]), NUMBERS),
    st.tuples(st.sampled_from(["roll", "split", "round", "start", "stop", "lose"]), NUMBERS),
    st.tuples(st.just("die"), st.tuples(NUMBERS, st.sampled_from(PHASES), st.integers(1, 2))),
    st.tuples(st.just("wait"), st.sampled_from([1, 30, 400])),
    st.tuples(st.just("refuse"), st.sampled_from(["LimitExceededException", "InternalServerError"])),
)


def settle(table: FollowedTable) -> None:
    table.service.refusals.clear()
    for _ in range(3):  # the audit is sure when it has found a hole three times
        table.settle()


def check(table: FollowedTable, seed: int = 0) -> None:
    """Check that the rows make the table, in whatever order a sink merges them, and that none is there twice."""
    rows = table.rows
    for number in range(3):
        random.Random(seed + number).shuffle(rows)
        assert merged(rows) == table.items
    changes = [(row["shard_id"], row["sequence_number"]) for row in rows if row["operation"] != "READ"]
    assert len(changes) == len(set(changes)), "a change is there twice"


@pytest.mark.integration
@settings(max_examples=examples(15))
@given(st.lists(ACTIONS, max_size=10), st.lists(ACTIONS, max_size=25), st.integers(0, 99))
def test_merged_rows_are_the_table(before: list[tuple[str, Any]], story: list[tuple[str, Any]], seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = FollowedTable(Path(folder))
        for action, value in before:
            if action in ("put", "remove", "roll", "split", "wait"):
                act(table, action, value)
        table.sync()
        for action, value in story:
            act(table, action, value)
        settle(table)
        check(table, seed)
        assert table.losses == 0


def act(table: FollowedTable, action: str, value: Any) -> None:
    if action in ("put", "remove", "split"):
        getattr(table, action)(value)
    else:
        happen(table, action, value)


def test_history_begins_before_its_changes_are_read(tmp_path: Path) -> None:
    table = FollowedTable(tmp_path)
    table.sync()
    worker = table.start()
    table.put(0)
    table.round(worker)
    assert table.rows == []
    assert {p.status for p in table.look.view.partitions() if p.progress["kind"] == "dynamodb_streams"} <= {
        PartitionStatus.UNASSIGNED
    }, "a shard waits while the history is not delivered"
    settle(table)
    check(table)


def test_history_has_the_columns_of_changes(tmp_path: Path) -> None:
    table = FollowedTable(tmp_path)
    table.clock.advance(120)
    table.sync()
    settle(table)
    rows = table.rows
    assert len(rows) == 8 and {row["operation"] for row in rows} == {"READ"}
    [row] = [row for row in rows if row["keys"] == '{"id":"k0"}']
    assert row["new_image"] == row["data"] == '{"id":"k0","event":"0"}' and row["old_image"] is None
    assert (row["table_name"], row["is_ttl_delete"], row["size_bytes"]) == ("clicks", False, 23)
    order, number = row["change_order"].split("-")
    assert len(row["change_order"]) == 53 and int(number) == 0
    assert int(order) == table.service.stream_of("clicks").created_at.timestamp()
    places = [(each["_batch_id"], each["sequence_number"], each["size_bytes"]) for each in rows]
    assert len(set(places)) == len(places), "a row is identified within its batch"


def test_item_deleted_during_the_scan_stays_deleted(tmp_path: Path) -> None:
    table = FollowedTable(tmp_path)
    table.sync()
    worker = table.start()
    table.round(worker)
    table.service.remove("clicks", {"S": "k0"})
    settle(table)
    assert "k0" not in merged(table.rows)
    check(table)


def test_stream_enabled_again_reads_the_history_again(tmp_path: Path) -> None:
    table = FollowedTable(tmp_path)
    table.sync()
    settle(table)
    table.service.disable("clicks")
    table.put(0)
    table.put(9)
    table.clock.advance(60)
    table.service.enable("clicks")
    table.put(1)
    table.sync()
    settle(table)
    check(table)
    assert len(table.parts_of_history()) == 2 * table.segments


def test_item_deleted_between_two_streams_is_kept(tmp_path: Path) -> None:
    """The limit that `docs/dynamodb_lake.md` states."""
    table = FollowedTable(tmp_path)
    table.sync()
    settle(table)
    table.service.disable("clicks")
    table.remove(0)
    table.clock.advance(60)
    table.service.enable("clicks")
    table.sync()
    settle(table)
    assert merged(table.rows).keys() - table.items.keys() == {"k0"}


def test_table_created_again_is_read_from_its_start(tmp_path: Path) -> None:
    table = FollowedTable(tmp_path)
    table.sync()
    settle(table)
    table.service.delete_table("clicks")
    table.clock.advance(60)
    table.service.create_table("clicks", shards=1)
    for number in range(12):
        table.put(number)
    table.sync()
    settle(table)
    check(table)


def test_table_created_again_during_its_history_starts_again(tmp_path: Path) -> None:
    table = FollowedTable(tmp_path)
    table.sync()
    worker = table.start()
    table.service.delete_table("clicks")
    table.clock.advance(60)
    table.service.create_table("clicks", shards=1)
    for number in range(12):
        table.put(number)
    table.round(worker)
    table.sync()
    settle(table)
    check(table)
    assert {part.status for part in table.parts_of_history()} == {PartitionStatus.COMPLETED}


def test_restored_table_is_read_again_once_its_stream_is_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = FollowedTable(tmp_path)
    table.sync()
    settle(table)
    restored = dict(table.service.items["clicks"])
    for number in range(8):
        table.put(number)
    settle(table)
    table.service.delete_table("clicks")
    table.clock.advance(60)
    table.service.create_table("clicks", view=None)
    table.service.items["clicks"] = restored
    [result] = table.sync().streams
    assert (result.error, result.lost) == (None, {})
    assert "aws dynamodb update-table --table-name clicks" in caplog.text
    table.service.enable("clicks", "NEW_IMAGE")
    table.put(3)
    table.sync()
    settle(table)
    check(table)


def test_keys_of_another_type_are_other_items(tmp_path: Path) -> None:
    table = FollowedTable(tmp_path)
    table.sync()
    settle(table)
    table.service.delete_table("clicks")
    table.clock.advance(60)
    table.service.create_table("clicks")
    numbers = [{"id": {"N": str(number)}, "event": {"S": "numeric"}} for number in range(4)]
    for item in numbers[:2]:
        table.service.put("clicks", item)
    table.sync()
    for item in numbers[2:]:
        table.service.put("clicks", item)
    settle(table)
    rows = merged(table.rows)
    assert {key: row["event"] for key, row in rows.items() if isinstance(key, int)} == dict.fromkeys(
        range(4), "numeric"
    )
    keys = {row["keys"] for row in table.rows}
    assert {'{"id":0}', '{"id":"k0"}'} <= keys, "a sink keeps both, as documented for deleted items"


class SecondReader(FollowedTable):
    """A source that follows the table of another one."""

    first: FollowedTable

    def connect(self, shards: int) -> Any:
        self.clock, self.service = self.first.clock, self.first.service
        return client_of(self.service, "NEW_IMAGE")

    def put(self, number: int) -> None:
        """The first source's test puts items."""


def test_two_sources_follow_one_table_independently(tmp_path: Path) -> None:
    SecondReader.first = first = FollowedTable(tmp_path / "first")
    second = SecondReader(tmp_path / "second")
    first.sync()
    settle(first)
    first.put(0)
    second.sync()
    first.remove(1)
    first.split(0)
    for table in (second, first):
        settle(table)
        check(table)
    assert Counter(row["operation"] for row in second.rows)["READ"] == len(first.items)


def reset(table: FollowedTable, to: str = "earliest", *names: str) -> list[ResetStep]:
    """Reset the whole table, or some partitions."""
    resets = Resets(AcknowledgmentSets(table.coordinator("person", table.store), SourceBatches()))
    target = parse_target(to, table.clock.now())
    with table.reached():
        plan = (
            resets.plan_partitions(resets.find_partitions(names), target)
            if names
            else resets.plan_group("clicks", target, lambda kind: StreamService(table.client))
        )
        for _, result in resets.apply(plan, only_if_unchanged=False):
            assert not isinstance(result, Exception), result
    return list(plan.steps)


def stop_all(table: FollowedTable) -> None:
    for worker in list(table.workers.values()):
        table.stop(worker)


def test_reset_reads_history_again_and_wins_over_what_was(tmp_path: Path) -> None:
    table = FollowedTable(tmp_path)
    table.sync()
    table.put(0)
    settle(table)
    stop_all(table)
    table.put(0)
    table.clock.advance(30 * 3600)  # the stream keeps a change for a day
    table.put(1)
    settle(table)
    assert table.losses > 0 and merged(table.rows) != table.items
    stop_all(table)
    steps = reset(table)
    assert {step.partition.partition_key for step in steps} >= {p.partition_key for p in table.parts_of_history()}
    table.sync()
    table.put(2)
    settle(table)
    assert merged(table.rows) == table.items


def test_reset_to_an_instant_keeps_the_history(tmp_path: Path) -> None:
    table = FollowedTable(tmp_path)
    table.sync()
    settle(table)
    read = len(table.rows)
    table.put(0)
    settle(table)
    stop_all(table)
    reset(table, (table.clock.now() - timedelta(hours=1)).isoformat())
    settle(table)
    operations = Counter(row["operation"] for row in table.rows)
    assert operations["READ"] == 8 and len(table.rows) > read + 1
    assert merged(table.rows) == table.items


def test_reset_of_a_part_that_breaks_the_order_is_refused(tmp_path: Path) -> None:
    table = FollowedTable(tmp_path, 1)
    table.sync()
    settle(table)
    [parent] = table.service.stream_of("clicks").shards
    table.roll(0)
    settle(table)
    with pytest.raises(ConfigurationError, match="reset the whole table instead"):
        reset(table, "earliest", parent)
    with pytest.raises(ConfigurationError, match=r"part of the history .* as part 'clicks' of the source"):
        reset(table, "earliest", table.parts_of_history()[0].partition_key)


def test_job_reads_history_and_changes_before_it_ends(tmp_path: Path) -> None:
    table = FollowedTable(tmp_path)
    table.sync()
    table.put(3)
    summary = table.run(until_caught_up=True)
    assert summary.stopped_because == "everything that was there at the start is delivered"
    assert merged(table.rows) == table.items


def test_rounds_that_wait_for_the_history_are_not_idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = FollowedTable(tmp_path)
    table.sync()
    table.put(1)
    advance = table.clock.advance
    monkeypatch.setattr(EndRequests, "pause", lambda _, duration, **limits: advance(duration.total_seconds()))
    summary = table.run(until_caught_up=False, max_idle_rounds=3)
    assert summary.stopped_because == "3 rounds in a row had no record"
    assert merged(table.rows) == table.items and "MODIFY" in {row["operation"] for row in table.rows}


def test_job_does_not_wait_for_a_history_that_failed(tmp_path: Path) -> None:
    table = FollowedTable(tmp_path)
    table.sync()
    for part in table.parts_of_history():
        Administration(table.store, table.look.view.source_identifier, table.clock).park(part.partition_key)
    summary = table.run(until_caught_up=True)
    assert summary.stopped_because == "no partition is available" and table.rows == []


def test_store_lost_after_the_history_misses_no_change(tmp_path: Path) -> None:
    table = FollowedTable(tmp_path)
    table.sync()
    table.work(table.start())
    table.put(0)
    table.remove(3)
    stop_all(table)
    parts = table.parts_of_history()
    assert {part.status for part in parts} == {PartitionStatus.COMPLETED}
    known = {
        part.partition_key: landed_progress(part.progress) for part in parts[1:]
    }  # tables do not know an empty one
    state = get_kind("dynamodb").rebuilt_state(known, [""])
    table.clock.advance(7200)
    table.store = InMemoryStore()
    table.look = table.coordinator("look", table.store)
    table.look.supply(lambda stored: [Page({}, state)])
    table.store.create([part.completed(table.clock.now()) for part in parts[1:]])
    table.sync()
    settle(table)
    assert len(table.parts_of_history()) == table.segments
    assert merged(table.rows) == table.items
