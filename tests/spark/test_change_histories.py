"""Random histories of a table's stream: changes are delivered once and in order for each item, whatever fails."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spark.test_histories import act
from tests.support.change_history import ChangeHistory
from tests.support.depth import examples
from tests.support.dynamodb_streams import strings
from tests.support.fleet import PHASES
from tests.support.history import STREAM

NUMBERS = st.integers(0, 7)
ACTIONS = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 12)),
    st.tuples(st.sampled_from(["roll", "split", "round", "start", "stop", "lose"]), NUMBERS),
    st.tuples(st.just("die"), st.tuples(NUMBERS, st.sampled_from(PHASES), st.integers(1, 2))),
    st.tuples(st.just("wait"), st.sampled_from([1, 30, 400])),
    st.tuples(st.just("refuse"), st.sampled_from(["LimitExceededException", "InternalServerError"])),
    st.tuples(st.just("delay"), st.sampled_from([0.0, 90.0])),
)
LOSSES = st.tuples(st.just("wait"), st.sampled_from([6 * 3600, 30 * 3600])) | st.tuples(
    st.just("enable_again"), st.sampled_from([1, 3600])
)


def happen(history: ChangeHistory, action: str, value: Any) -> None:
    match action:
        case "roll" | "enable_again":
            getattr(history, action)(value)
        case "refuse":
            history.service.refusals += [("get_records", value), ("get_shard_iterator", value)]
        case "delay":
            history.service.listing_delay_seconds = value
        case _:
            act(history, action, value)
    assert set(history.delivered.values()) <= {1}, "nothing is ever there twice"


def settle(history: ChangeHistory) -> None:
    history.service.refusals.clear()
    for _ in range(3):  # the audit is sure when it has found the hole three times
        history.settle()


@pytest.mark.integration
@settings(max_examples=examples(12))
@given(st.lists(ACTIONS, max_size=25))
def test_changes_are_delivered_once_in_order_per_item(story: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = ChangeHistory(Path(folder))
        history.sync()
        for action, value in story:
            happen(history, action, value)
        settle(history)
        assert history.delivered == Counter(history.sent)
        assert history.out_of_order() == []
        assert history.unfinished() == [] and history.losses == 0


@pytest.mark.integration
@settings(max_examples=examples(12))
@given(st.lists(ACTIONS | LOSSES, max_size=25))
def test_changes_lost_before_reading_are_reported(story: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = ChangeHistory(Path(folder))
        history.sync()
        for action, value in story:
            happen(history, action, value)
        settle(history)
        assert set(history.delivered) <= set(history.sent)
        if set(history.sent) - set(history.delivered):
            assert history.losses > 0, "data loss is never silent"


def test_stream_enabled_again_loses_nothing_of_the_earlier_one(tmp_path: Path) -> None:
    history = ChangeHistory(tmp_path)
    history.sync()
    worker = history.start()
    history.send(6)
    history.round(worker)
    history.split(0)
    history.send(6)
    history.enable_again(120)
    history.send(6)
    settle(history)
    assert history.delivered == Counter(history.sent)
    assert history.losses == 0


def test_latest_delivers_what_changes_from_now_on(tmp_path: Path) -> None:
    history = ChangeHistory(tmp_path, initial_position="LATEST")
    history.send(8)
    history.clock.advance(5)
    before = set(history.sent)
    history.sync()
    history.roll(0)
    history.send(8)
    settle(history)
    assert history.delivered == Counter(event for event in history.sent if event not in before)


def test_landed_changes_have_operation_images_and_cause(tmp_path: Path) -> None:
    history = ChangeHistory(tmp_path, shards=1)
    history.sync()
    key = {"S": "a"}
    history.service.put(STREAM, strings(id="a", event="a/0"))
    history.service.put(STREAM, strings(id="a", event="a/1"))
    history.service.remove(STREAM, key, by_ttl=True)
    with history.without_spark():
        history.start().job.round()
    [landed] = (tmp_path / "_landing").rglob("*.parquet")
    rows = pq.read_table(landed).to_pylist()
    assert [(row["operation"], row["new_image"], row["old_image"], row["is_ttl_delete"]) for row in rows] == [
        ("INSERT", '{"id":"a","event":"a/0"}', None, False),
        ("MODIFY", '{"id":"a","event":"a/1"}', '{"id":"a","event":"a/0"}', False),
        ("REMOVE", None, '{"id":"a","event":"a/1"}', True),
    ]
    assert {(row["table_name"], row["keys"]) for row in rows} == {(STREAM, '{"id":"a"}')}
    assert rows[2]["data"] == '{"id":"a"}' and len({row["_batch_id"] for row in rows}) == 1
