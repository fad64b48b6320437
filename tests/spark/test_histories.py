"""Random histories of a stream: readable records are delivered once and in order, whatever fails."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.audit.source_audit import audit_source
from airflow_provider_coordination.spark.sink_settings import SinkSettings
from tests.support.depth import examples
from tests.support.fleet import PHASES, MortalWorker
from tests.support.history import History

NUMBERS = st.integers(0, 7)
ACTIONS = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 12)),
    st.tuples(st.just("split"), NUMBERS),
    st.tuples(st.just("merge"), NUMBERS),
    st.tuples(st.just("round"), NUMBERS),
    st.tuples(st.just("start"), NUMBERS),
    st.tuples(st.just("stop"), NUMBERS),
    st.tuples(st.just("lose"), NUMBERS),
    st.tuples(st.just("die"), st.tuples(NUMBERS, st.sampled_from(PHASES), st.integers(1, 2))),
    st.tuples(st.just("wait"), st.sampled_from([1, 30, 70, 400])),
    st.tuples(st.just("sync"), st.booleans()),
)


LOSSES = st.tuples(st.just("wait"), st.sampled_from([6 * 3600, 30 * 3600])) | st.tuples(
    st.just("recreate"), st.integers(0, 2)
)


def act(history: History, action: str, value: Any) -> None:
    workers = list(history.workers.values())
    match action:
        case "send" | "split" | "merge" | "recreate":
            getattr(history, action)(value)
        case "wait":
            history.clock.advance(value)
        case "sync":
            history.sync(forced=value)
        case "start":
            if len(workers) < 4:
                history.start()
        case _ if not workers:
            return
        case "die":
            number, phase, count = value
            doomed = workers[number % len(workers)]
            doomed.dies_at = (phase, count)
            history.round(doomed)
        case "round" | "stop":
            getattr(history, action)(workers[value % len(workers)])
        case "lose":
            lost: MortalWorker = workers[value % len(workers)]
            history.lose(lost)
            if value % 2:
                history.notice(lost)


def check_everything(history: History) -> None:
    history.settle()
    assert history.delivered == Counter(history.sent)
    assert history.out_of_order() == []
    assert history.unfinished() == []
    assert audited(history) == []


def audited(history: History) -> list[str]:
    """Return what an audit of the dataset finds and the store does not explain."""
    sink = SinkSettings(name="main", kind="parquet", location=str(history.folder))
    report = audit_source(history.look.view, [sink], reads_rows=True)
    return [
        str(each) for each in report.findings if not each.is_explained and (history.delivered or each.partition_key)
    ]


@pytest.mark.integration
@settings(max_examples=examples(60))
@given(st.lists(ACTIONS, max_size=30))
def test_records_are_delivered_once_in_order_per_key(story: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder))
        history.sync()
        for action, value in story:
            act(history, action, value)
            assert set(history.delivered.values()) <= {1}, "nothing is ever there twice"
        check_everything(history)


@pytest.mark.integration
@settings(max_examples=examples(60))
@given(st.lists(ACTIONS | LOSSES, max_size=30))
def test_records_lost_before_reading_are_reported_alone(story: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder))
        history.sync()
        for action, value in story:
            act(history, action, value)
            assert set(history.delivered.values()) <= {1}, "nothing is ever there twice"
        history.settle()
        assert set(history.delivered) <= set(history.sent)
        assert set(history.delivered.values()) <= {1}
        assert history.out_of_order() == []
        assert history.unfinished() == []
        assert audited(history) == []
        if set(history.sent) - set(history.delivered):
            assert history.losses > 0, "data loss is never silent"


def test_reshardings_faster_than_rounds_are_read_to_the_end(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.sync()
    worker = history.start()
    for step in range(12):
        history.send(4)
        history.split(step) if step % 3 else history.merge(step)
        if step % 5 == 0:
            history.round(worker)
    check_everything(history)
    assert worker.name in history.workers, "it is the same job"


def test_recreated_stream_is_not_read_under_its_old_name(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.sync()
    worker = history.start()
    history.round(worker)
    history.recreate(1)
    history.send(6)
    history.round(worker)
    assert history.delivered == Counter()
    history.settle()
    history.settle()  # the job's own shard sync is sure when it has seen the hole three times
    assert history.delivered == Counter(history.sent)
    assert history.losses == 2, "what the former stream's shards might have held"
