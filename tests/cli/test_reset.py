"""Setting positions by hand from a shell."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.sources.kinesis import reset
from airflow_provider_coordination.sources.kinesis.progress import Gap, ShardProgress, partition_key
from airflow_provider_coordination.sources.kinesis.shards import describe_stream, list_shards
from airflow_provider_coordination.sources.landed import LandedBatch
from tests.cli.conftest import Clicks, Shell

SHARD = "clicks:1767268800:shardId-000000000007"
PROGRESS = ShardProgress(
    stream="clicks",
    shard_id="shardId-000000000007",
    parent_shard_ids=("shardId-000000000001",),
    starting_hash_key="0",
    ending_hash_key="99",
    checkpoint="1234",
    landed=(
        LandedBatch(
            batch_id="b",
            start="1234",
            end="2345",
            file="f",
            file_bytes=1,
            records=1,
            bytes=1,
            is_last=True,
            read_until=None,
            fencing_token=3,
        ),
    ),
    is_ended=True,
)


def position(clicks: Clicks, key: str = SHARD) -> str:
    return ShardProgress.from_mapping(clicks[key].progress).checkpoint


@pytest.mark.parametrize(
    ("to", "stored", "message"),
    [
        ("earliest", "TRIM_HORIZON", "again from the start"),
        ("latest", "AT_TIMESTAMP:2026-01-01T00:00:00.000000Z", "read from now on"),
        (
            "2025-12-31T12:00:00Z",
            "AT_TIMESTAMP:2025-12-31T12:00:00.000000Z",
            "from records that arrived at 2025-12-31T12",
        ),
        ("5678", "5678", "read on after 5678"),
    ],
)
def test_shard_is_read_from_the_given_position(
    shell: Shell, clicks: Clicks, to: str, stored: str, message: str
) -> None:
    clicks.a.create_partitions({SHARD: PROGRESS.to_mapping()})
    ended = shell("reset", "clicks", SHARD, "--to", to, answer="y\n")
    assert (ended.exit_code, ended.out) == (0, f"reset {SHARD}, was UNASSIGNED\n")
    assert message in " ".join(ended.err.split())
    assert position(clicks) == stored
    assert ShardProgress.from_mapping(clicks[SHARD].progress).epoch > 0


@pytest.mark.parametrize("to", ["2027-01-01T00:00:00Z", "1960-01-01T00:00:00Z", "yesterday", "-1"])
def test_impossible_position_is_wrong_usage_and_changes_nothing(shell: Shell, clicks: Clicks, to: str) -> None:
    clicks.a.create_partitions({SHARD: PROGRESS.to_mapping()})
    before = clicks[SHARD]
    ended = shell("reset", "clicks", SHARD, f"--to={to}", "--yes")
    assert (ended.exit_code, ended.out) == (2, "")
    assert f"error: position '{to}'" in ended.err
    assert clicks[SHARD] == before


def test_sequence_number_applies_to_one_shard(shell: Shell, clicks: Clicks) -> None:
    clicks.waiting("p", "q")
    ended = shell("reset", "clicks", "p", "q", "--to", "7", "--yes")
    assert ended.exit_code == 2 and "position '7' belongs to one partition" in ended.err


def test_partition_without_positions_resets_to_its_beginning_only(shell: Shell, clicks: Clicks) -> None:
    clicks.waiting("p")
    ended = shell("reset", "clicks", "p", "--to", "latest", "--yes")
    assert ended.exit_code == 1 and "'p' is read as a whole and has no position 'latest'" in ended.err


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["p", "--all"],
        ["p", "--part", "clicks"],
        ["--part", "clicks", "--all"],
        ["p", "--to", "1", "--progress={}"],
    ],
)
def test_selection_must_be_given_exactly_once(shell: Shell, clicks: Clicks, args: list[str]) -> None:
    clicks.waiting("p")
    before = clicks["p"]
    assert shell("reset", "clicks", *args, "--yes").exit_code == 2
    assert clicks["p"] == before


class Stream:
    """A stream of a parent and two children, read by the source `clicks`; and the options to reach it."""

    def __init__(self, clicks: Clicks, account: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", account.access_key_id)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
        self.client = account.client()
        self.client.create_stream(StreamName="clicks", ShardCount=1)
        self.client.split_shard(
            StreamName="clicks", ShardToSplit="shardId-000000000000", NewStartingHashKey=str(2**127)
        )
        epoch = describe_stream(self.client, "clicks").creation_epoch
        shards = {partition_key("clicks", epoch, s.shard_id): s for s in list_shards(self.client, "clicks")}
        clicks.a.create_partitions({k: ShardProgress.first("clicks", s).to_mapping() for k, s in shards.items()})
        self.parent, *self.children = shards
        clicks.store.transact(update=[clicks[self.parent].completed(clicks.clock.now())])
        self.arn = self.client.describe_stream_summary(StreamName="clicks")["StreamDescriptionSummary"]["StreamARN"]
        self.options = ["--region", "us-east-1", "--endpoint-url", account.endpoint_url]


@pytest.fixture
def stream(clicks: Clicks, kinesis_account: Any, monkeypatch: pytest.MonkeyPatch) -> Stream:
    return Stream(clicks, kinesis_account, monkeypatch)


@pytest.mark.integration
@pytest.mark.parametrize("which", [["--part", "clicks"], ["--all"]])
def test_stream_or_source_is_reset_parents_first(
    shell: Shell, clicks: Clicks, stream: Stream, which: list[str]
) -> None:
    ended = shell("reset", "clicks", *which, *stream.options, answer="y\n")
    assert ended.exit_code == 0, ended.err
    assert ended.out.splitlines() == [
        f"reset {stream.parent}, was COMPLETED",
        *(f"removed {child}, was UNASSIGNED" for child in stream.children),
    ]
    assert "2 of these partitions depend on others and are removed" in " ".join(ended.err.split())
    assert position(clicks, stream.parent) == "TRIM_HORIZON"
    assert not any(child in clicks for child in stream.children)


@pytest.mark.integration
def test_stream_is_reset_by_its_arn(
    shell: Shell, clicks: Clicks, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    named: list[str] = []

    def described(client: Any, name: str) -> Any:
        named.append(name)
        return describe_stream(client, name)

    monkeypatch.setattr(reset, "describe_stream", described)
    ended = shell("reset", "clicks", "--part", stream.arn, "--yes", "--json", *stream.options[2:])
    assert [record["partition_key"] for record in ended.records] == [stream.parent, *stream.children]
    assert named == [stream.arn]
    other = shell("reset", "clicks", "--part", stream.arn.replace("stream/clicks", "stream/views"), "--yes")
    assert other.exit_code == 2 and "source 'clicks' has no part 'arn:aws:kinesis:" in other.err


@pytest.mark.integration
def test_unchanged_partitions_are_reported_and_left_alone(shell: Shell, clicks: Clicks, stream: Stream) -> None:
    ended = shell("reset", "clicks", "--part", "clicks", "--to", "latest", "--yes", "--json", *stream.options)
    assert [(record["action"], record["partition_key"]) for record in ended.records] == [
        ("reset", child) for child in stream.children
    ]
    assert f"{stream.parent} is not reset: finished: it receives no more records" in " ".join(ended.err.split())
    assert clicks[stream.parent].status is PartitionStatus.COMPLETED


@pytest.mark.integration
def test_unknown_stream_is_wrong_usage(shell: Shell, stream: Stream) -> None:
    ended = shell("reset", "clicks", "--part", "views", "--yes", *stream.options)
    assert (ended.exit_code, ended.out) == (2, "")
    assert "source 'clicks' has no part 'views'; it has 'clicks'" in ended.err


def test_show_prints_position_and_gaps_of_a_shard(shell: Shell, clicks: Clicks) -> None:
    now = clicks.clock.now()
    gap = Gap(after="5", before="9", since=now - timedelta(days=2), until=None, found_at=now, reason="it was trimmed")
    clicks.a.create_partitions({SHARD: PROGRESS.restarted("77", epoch=1767225600).with_gap(gap).to_mapping()})
    lines = shell("show", "clicks", SHARD).out.splitlines()
    shown = {line[:19].strip(): line[19:] for line in lines[: lines.index("progress:")]}
    assert (shown["position"], shown["epoch"]) == ("77", "1767225600 (reset at 2026-01-01T00:00:00Z)")
    assert shown["lost"] == "(5, 9), arrived from 2025-12-30T00:00:00Z: it was trimmed"
    assert shell("partitions", "clicks").out.splitlines()[1].split()[-1] == "1"


def test_reset_partition_has_empty_progress(shell: Shell, clicks: Clicks) -> None:
    clicks.completed("p")
    ended = shell("reset", "clicks", "p", "--yes")
    assert ended.out == "reset p, was COMPLETED\n"
    assert "warning: " in ended.err and "delivered again" in ended.err
    assert (clicks["p"].status, clicks["p"].progress) == (PartitionStatus.UNASSIGNED, {})


def test_reset_shard_is_read_from_trim_horizon(shell: Shell, clicks: Clicks) -> None:
    clicks.a.create_partitions({SHARD: PROGRESS.to_mapping()})
    assert shell("reset", "clicks", SHARD, "--yes").exit_code == 0
    progress = ShardProgress.from_mapping(clicks[SHARD].progress)
    assert (progress.checkpoint, progress.landed, progress.is_ended) == ("TRIM_HORIZON", (), False)
    assert (progress.shard_id, progress.parent_shard_ids) == (PROGRESS.shard_id, PROGRESS.parent_shard_ids)


def test_partition_is_reset_to_given_progress(shell: Shell, clicks: Clicks, tmp_path: Path) -> None:
    clicks.waiting("p")
    file = tmp_path / "progress.json"
    file.write_text('{"rows_done": 8}')
    assert shell("reset", "clicks", "p", "--progress", '{"rows_done": 7}', "--yes").exit_code == 0
    assert clicks["p"].progress == {"rows_done": 7}
    assert shell("reset", "clicks", "p", "--progress", f"@{file}", "--yes").exit_code == 0
    assert clicks["p"].progress == {"rows_done": 8}


@pytest.mark.parametrize("progress", ["{", "[1]", "@/no/such/file"])
def test_progress_must_be_a_json_object(shell: Shell, clicks: Clicks, progress: str) -> None:
    clicks.waiting("p")
    before = clicks["p"]
    ended = shell("reset", "clicks", "p", "--yes", "--progress", progress)
    assert ended.exit_code == 2
    assert "--progress" in ended.err
    assert clicks["p"] == before


def test_progress_applies_to_one_partition(shell: Shell, clicks: Clicks) -> None:
    clicks.waiting("p", "q")
    assert shell("reset", "clicks", "p", "q", "--progress", "{}", "--yes").exit_code == 2


def test_shard_accepts_its_own_progress_only(shell: Shell, clicks: Clicks) -> None:
    clicks.a.create_partitions({SHARD: PROGRESS.to_mapping()})
    before = clicks[SHARD]
    other = json.dumps({**PROGRESS.to_mapping(), "shard_id": "shardId-000000000008"})
    for progress, said in (
        (other, "belongs to shard 'shardId-000000000008'"),
        ("{}", "is not a progress of kind 'kinesis'"),
    ):
        ended = shell("reset", "clicks", SHARD, "--progress", progress, "--yes")
        assert ended.exit_code == 1
        assert said in ended.err
    assert clicks[SHARD] == before


@pytest.mark.parametrize("key", ["p", SHARD])
def test_position_is_required_without_a_stored_one(shell: Shell, clicks: Clicks, key: str) -> None:
    clicks.store.create(
        [
            Partition(
                source_identifier="clicks|PARTITION",
                partition_key=key,
                status=PartitionStatus.UNASSIGNED,
                priority=clicks.clock.now(),
                unreadable_progress="[",
            )
        ]
    )
    ended = shell("reset", "clicks", key, "--yes")
    assert ended.exit_code == 1
    assert "give the progress to start from" in ended.err
    given = json.dumps(PROGRESS.to_mapping())
    assert shell("reset", "clicks", key, "--yes", "--progress", given).exit_code == 0
    assert clicks[key].progress == PROGRESS.to_mapping()


def test_suspended_source_forgets_its_progress(shell: Shell, clicks: Clicks) -> None:
    clicks.waiting("p")
    clicks.leased("q")
    assert shell("reset", "clicks", "p", "--forget", "--yes").exit_code == 2
    assert "suspend it, and wait" in shell("reset", "clicks", "--forget", "--yes").err
    shell("suspend", "clicks", "--reason", "other data", "--yes")
    leased = shell("reset", "clicks", "--forget", "--yes")
    assert leased.exit_code == 1 and "cannot forget what is leased: 'q'" in leased.err
    shell("release", "clicks", "q", "--yes")
    assert shell("reset", "clicks", "--forget", answer="n\n").exit_code == 1
    ended = shell("reset", "clicks", "--forget", answer="y\n")
    assert (ended.exit_code, ended.out) == (0, "removed p, was UNASSIGNED\nremoved q, was UNASSIGNED\n")
    assert "No partitions to forget." in shell("reset", "clicks", "--forget", "--yes").err
