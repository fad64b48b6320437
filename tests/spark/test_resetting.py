"""Positions are set by hand while jobs run and die: no batch is undone or doubled."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.sources.kinds import SourceBatches
from airflow_provider_coordination.sources.kinesis.client import KinesisClient
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress, partition_key
from airflow_provider_coordination.sources.kinesis.stream_names import StreamService
from airflow_provider_coordination.sources.reset import Resets
from airflow_provider_coordination.sources.reset_targets import parse_target
from tests.support.depth import examples
from tests.support.fleet import EPOCH, PHASES, Crash, FakeStream, Fleet, crash_at

Observer = Callable[[str], None]


class StubListing:
    """The shards of a stream, as a Kinesis client lists them."""

    def __init__(self, stream: FakeStream) -> None:
        self._stream = stream

    def describe_stream_summary(self, **request: Any) -> Mapping[str, Any]:
        summary = {
            "StreamStatus": "ACTIVE",
            "StreamCreationTimestamp": datetime.fromtimestamp(EPOCH, UTC),
            "OpenShardCount": len(self._stream.open_shards),
            "RetentionPeriodHours": 24,
            "StreamARN": "arn:aws:kinesis:eu-west-1:123456789012:stream/s",
        }
        return {"StreamDescriptionSummary": summary, "ResponseMetadata": {}}

    def list_shards(self, **request: Any) -> Mapping[str, Any]:
        parents = {c.shard_id: c.parent_shard_ids for s in self._stream.shards.values() for c in s.children or ()}
        shards = []
        for number, name in enumerate(self._stream.shards):
            names = ("ParentShardId", "AdjacentParentShardId")
            shards.append(
                {
                    "ShardId": name,
                    "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"},
                    "SequenceNumberRange": {"StartingSequenceNumber": str(number)},
                    **dict(zip(names, parents.get(name, ()), strict=False)),
                }
            )
        return {"Shards": shards, "ResponseMetadata": {}}


class ResettingUser:
    """Resets what the jobs of a fleet work on, and knows which batches belong to which epoch."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.epochs: dict[str, int] = {}
        sets = AcknowledgmentSets(fleet.coordinator("person", fleet.store), SourceBatches())
        self._resets = Resets(sets)

    def noting(self, then: Observer = lambda phase: None) -> Observer:
        """Observe a job, and note what it recorded."""

        def observer(phase: str) -> None:
            if phase == "recorded":
                for partition in self.fleet.look.view.partitions():
                    progress = ShardProgress.from_mapping(partition.progress)
                    self.epochs |= {batch.batch_id: progress.epoch for batch in progress.landed}
            then(phase)

        return observer

    def reset(self, shard: str, to: str) -> None:
        partition = self.fleet.look.view.get(partition_key("s", EPOCH, shard))
        assert partition is not None
        self._do(self._resets.plan_partitions([partition], parse_target(to, datetime.now(UTC))))

    def reset_stream(self, to: str | datetime) -> None:
        client = cast(KinesisClient, StubListing(self.fleet.stream))
        self._do(self._resets.plan_group("s", parse_target(to, datetime.now(UTC)), lambda kind: StreamService(client)))

    def _do(self, plan: Any) -> None:
        for _, result in self._resets.apply(plan, only_if_unchanged=False):
            assert not isinstance(result, Exception), result

    def delivered(self, *, since: int = 1) -> list[str]:
        """What lies in the dataset of batches of an epoch or later ones, file by file."""
        return [
            row["data"].decode()
            for path in self.fleet.folder.glob("*.parquet")
            for row in ds.dataset([str(path)]).to_table(columns=["_batch_id", "data"]).to_pylist()
            if self.epochs[row["_batch_id"]] >= since
        ]


@pytest.mark.parametrize("dies", [False, True], ids=["continues", "dies"])
@pytest.mark.parametrize("phase", PHASES)
def test_reset_prevails_in_every_phase_of_a_job(tmp_path: Path, phase: str, dies: bool) -> None:
    stream = FakeStream(1)
    fleet = Fleet(stream, tmp_path)
    person = ResettingUser(fleet)
    stream.send(10)
    fleet.run(person.noting())
    stream.send(10)
    position = stream.shards["shard-0"].records[4].sequence_number
    left = [phase]

    def meddle(passed: str) -> None:
        if passed in left:
            left.remove(passed)
            person.reset("shard-0", position)
            if dies:
                raise Crash

    with suppress(Crash):
        fleet.run(person.noting(meddle))
    fleet.run(person.noting())

    progress = fleet.progress("shard-0")
    assert left == [] and progress.epoch > 0 and progress.landed == ()
    assert progress.checkpoint == stream.shards["shard-0"].records[-1].sequence_number
    assert Counter(person.delivered()) == Counter(stream.sent[5:])
    assert set(fleet.delivered()) == set(stream.sent)


@pytest.mark.parametrize("phase", PHASES)
def test_reset_to_now_skips_begun_batches(tmp_path: Path, phase: str) -> None:
    stream = FakeStream(1)
    fleet = Fleet(stream, tmp_path)
    person = ResettingUser(fleet)
    stream.send(6)
    left = [phase]

    def meddle(passed: str) -> None:
        if passed in left:
            left.remove(passed)
            person.reset("shard-0", "latest")
            raise Crash

    with suppress(Crash):
        fleet.run(person.noting(meddle))
    stream.send(6)
    fleet.run(person.noting())

    assert Counter(person.delivered()) == Counter(stream.sent[6:])


def test_reset_of_a_finished_shard_leaves_its_children_unchanged(tmp_path: Path) -> None:
    stream = FakeStream(1)
    fleet = Fleet(stream, tmp_path)
    person = ResettingUser(fleet)
    stream.send(4)
    stream.split()
    stream.send(4)
    fleet.run(person.noting())
    children = [fleet.progress(name) for name in ("shard-1", "shard-2")]

    person.reset("shard-0", "earliest")
    fleet.run(person.noting())

    assert Counter(person.delivered()) == Counter(stream.sent[:4])
    assert [fleet.progress(name).checkpoint for name in ("shard-1", "shard-2")] == [c.checkpoint for c in children]
    assert fleet.look.view.count_by_status()[PartitionStatus.COMPLETED] == 1


def test_children_of_a_reset_shard_deliver_nothing_older(tmp_path: Path) -> None:
    stream = FakeStream(1)
    fleet = Fleet(stream, tmp_path)
    person = ResettingUser(fleet)
    stream.send(4)
    stream.split()
    stream.send(4)
    time.sleep(0.001)  # or the last record and the instant may have the same microsecond
    instant = datetime.now(UTC)
    stream.send(4)
    fleet.run(person.noting())

    person.reset_stream(instant)
    assert fleet.progress("shard-0").is_ended, "its last record arrived before the instant, so it is not read again"
    fleet.run(person.noting())

    assert Counter(person.delivered()) == Counter(stream.sent[8:])


actions = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 8)),
    st.tuples(st.just("split"), st.none()),
    st.tuples(st.just("merge"), st.none()),
    st.tuples(st.just("run"), st.none()),
    st.tuples(st.just("reset"), st.none()),
    st.tuples(st.just("crash"), st.tuples(st.sampled_from(PHASES), st.integers(1, 3))),
    st.tuples(st.just("reset while running"), st.tuples(st.sampled_from(PHASES), st.integers(1, 3))),
)


@pytest.mark.integration
@settings(max_examples=examples(60))
@given(st.lists(actions, max_size=14))
def test_stream_reset_delivers_everything_once_more(
    story: list[tuple[str, Any]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stream = FakeStream(2)
        fleet = Fleet(stream, Path(folder))
        person = ResettingUser(fleet)

        def resets(phase: str, count: int) -> Observer:
            passing = crash_at(phase, count)

            def observer(passed: str) -> None:
                try:
                    passing(passed)
                except Crash:
                    person.reset_stream("earliest")

            return observer

        for action, value in [*story, ("reset", None)]:
            if action == "send":
                stream.send(value)
            elif action == "run":
                fleet.run(person.noting())
            elif action == "crash":
                with suppress(Crash):
                    fleet.run(person.noting(crash_at(*value)))
            elif action == "reset while running":
                fleet.run(person.noting(resets(*value)))
            elif action == "reset":
                person.reset_stream("earliest")
            else:
                getattr(stream, action)()
        last = max(ShardProgress.from_mapping(p.progress).epoch for p in fleet.look.view.partitions())
        summary = fleet.run(person.noting())

        assert (summary.failed, summary.lost) == ({}, [])
        assert Counter(person.delivered(since=last)) == Counter(stream.sent)
        counts = fleet.look.view.count_by_status()
        assert counts[PartitionStatus.UNASSIGNED] == len(stream.open_shards)
        assert counts[PartitionStatus.COMPLETED] == len(stream.shards) - len(stream.open_shards)
