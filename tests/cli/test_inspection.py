"""The read-only commands."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_provider_coordination.coordination.intervals import IntervalLedger
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus, format_instant
from airflow_provider_coordination.sources.items import FailedItem, PartitionProgress
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from tests.cli.conftest import Clicks, Shell
from tests.support.clock import ManualClock

OWNER = "vm-17:clicks_to_parquet:scheduled__2026-01-01T00:00:00+00:00:ingest:0:1:e5350be7"


def test_sources_are_listed_with_partitions_by_status(shell: Shell, clicks: Clicks) -> None:
    clicks.waiting("p", "q")
    clicks.completed("r")
    clicks.a.supply(lambda state: [])
    assert shell("sources").out.splitlines() == [
        "source  UNASSIGNED  ASSIGNED  CLOSED  COMPLETED",
        "clicks           2         0       0          1",
        "Other items: clicks|GLOBAL_STATE",
    ]


def test_sources_of_all_prefixes_are_listed_by_default(shell: Shell, clicks: Clicks) -> None:
    clicks.waiting("p")
    clicks.owner("b", source="orders", prefix="staging").create_partitions({"o": {}})
    assert [(r["prefix"], r["source"]) for r in shell("sources", "--json").records] == [
        (None, "clicks"),
        ("staging", "orders"),
    ]
    assert [r["source"] for r in shell("sources", "--json", "--prefix", "staging").records] == ["orders"]


def test_empty_store_is_reported(shell: Shell, clicks: Clicks) -> None:
    ended = shell("sources")
    assert (ended.exit_code, ended.out, ended.err) == (0, "", "The store has no sources.\n")


def test_partition_list_shows_the_time_of_each_status(shell: Shell, clicks: Clicks, clock: ManualClock) -> None:
    clicks.leased("in use")
    clicks.parked("parked")
    clicks.waiting("waiting")
    clicks.completed("done")
    clock.advance(45)
    assert shell("partitions", "clicks").out.splitlines() == [
        "partition  status      time        fails  gaps  items  owner",
        "in use     ASSIGNED    15 s left                       host:a",
        "parked     CLOSED      parked          1",
        "waiting    UNASSIGNED  waits 45 s",
        "done       COMPLETED   45 s ago",
    ]


def test_output_without_a_terminal_is_not_truncated(shell: Shell, clicks: Clicks) -> None:
    key = "k" * 300
    clicks.waiting(key)
    clicks.owner(OWNER).leases.acquire(1)
    out = shell("partitions", "clicks").out
    assert key in out and OWNER in out


def test_partitions_are_filtered_by_status(shell: Shell, clicks: Clicks) -> None:
    clicks.leased("p")
    clicks.waiting("q")
    clicks.completed("r")
    records = shell("partitions", "clicks", "--status", "assigned", "--status", "COMPLETED", "--json").records
    assert [r["partition_key"] for r in records] == ["p", "r"]


def test_parked_partitions_are_selected(shell: Shell, clicks: Clicks) -> None:
    clicks.parked("p")
    clicks.waiting("q")
    assert [r["partition_key"] for r in shell("partitions", "clicks", "--parked", "--json").records] == ["p"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], ["b", "c", "a"]),
        (["--sort", "key"], ["a", "b", "c"]),
        (["--sort", "key", "--reverse", "--limit", "2"], ["c", "b"]),
        (["--sort", "attempts", "--reverse", "--limit", "1"], ["c"]),
        (["--sort", "owner", "--limit", "1"], ["b"]),
        (["--sort", "owner", "--reverse", "--limit", "1"], ["b"]),
        (["--sort", "status"], ["b", "c", "a"]),
        (["--limit", "2"], ["b", "c"]),
    ],
)
def test_partitions_are_sorted_and_limited(
    shell: Shell, clicks: Clicks, options: list[str], expected: list[str]
) -> None:
    clicks.waiting("a")
    clicks.leased("b")
    clicks.parked("c")
    assert [r["partition_key"] for r in shell("partitions", "clicks", "--json", *options).records] == expected


def test_more_than_a_page_of_partitions_is_listed(shell: Shell, clicks: Clicks) -> None:
    keys = [f"p{number:04}" for number in range(1200)]
    clicks.waiting(*keys)
    assert [r["partition_key"] for r in shell("partitions", "clicks", "--json").records] == keys


def test_source_without_partitions_warns(shell: Shell, clicks: Clicks) -> None:
    ended = shell("partitions", "clikcs", "--json")
    assert (ended.exit_code, ended.out) == (0, "")
    assert "warning: source 'clikcs' has no partitions;" in ended.err


def test_control_characters_are_escaped(shell: Shell, clicks: Clicks) -> None:
    clicks.waiting("\x1b[31mred\n")
    assert r"\x1b[31mred\n " in shell("partitions", "clicks").out


def test_partition_is_json_with_its_field_names(shell: Shell, clicks: Clicks, clock: ManualClock) -> None:
    clicks.leased("ü|1")
    expected = {
        "source_identifier": "clicks|PARTITION",
        "partition_key": "ü|1",
        "status": "ASSIGNED",
        "priority": format_instant(clicks["ü|1"].priority),
        "owner": "host:a",
        "ownership_timeout": "2026-01-01T00:01:00.000000Z",
        "held_since": "2026-01-01T00:00:00.000000Z",
        "progress": {"rows_done": 3},
        "unreadable_progress": None,
        "reopen_at": None,
        "closed_count": 0,
        "attempts": 0,
        "last_error": None,
        "version": clicks["ü|1"].version,
        "is_parked": False,
    }
    assert shell("show", "clicks", "ü|1", "--json").records == [expected]
    assert shell("partitions", "clicks", "--json").records == [expected]


def test_show_prints_a_whole_partition(shell: Shell, clicks: Clicks, clock: ManualClock) -> None:
    clicks.leased("p")
    clock.advance(20)
    out = shell("show", "clicks", "p").out
    for line in (
        "partition          p",
        "source             clicks|PARTITION",
        "status             ASSIGNED (40 s left)",
        "owner              host:a",
        "ownership_timeout  2026-01-01T00:01:00.000000Z (in 40 s)",
        "held_since         2026-01-01T00:00:00.000000Z (20 s ago)",
        "last_error         -",
        '  "rows_done": 3',
    ):
        assert line in out.splitlines()


def test_last_error_of_a_parked_partition_is_shown(shell: Shell, clicks: Clicks) -> None:
    clicks.parked("p")
    lines = shell("show", "clicks", "p").out.splitlines()
    assert "last_error         no luck" in lines and "reopen_at          never: parked" in lines


def test_item_partition_shows_progress_position_and_unreadable_items(shell: Shell, clicks: Clicks) -> None:
    progress = PartitionProgress(
        kind="s3",
        items=({"key": "a"}, {"key": "b"}, {"key": "c"}),
        checkpoint="1:77",
        failed=(FailedItem(item=0, reason="a: it is damaged"),),
        reread_seconds=60.0,
        reads_left=2,
    )
    clicks.a.create_partitions({"p": progress.to_mapping(), "bad": {"kind": "s3"}})
    listed = [line.split() for line in shell("partitions", "clicks").out.splitlines()]
    assert sorted([line[0], line[-1]] for line in listed[1:]) == [["bad", "?"], ["p", "1/3"]]
    lines = shell("show", "clicks", "p").out.splitlines()
    for line in (
        "kind               s3",
        "items              1 of 3 done",
        "position           1:77",
        "read again         60 s after it is delivered, 2 more times",
        "to deliver         -",
        "unreadable         item 0: a: it is damaged",
    ):
        assert line in lines
    assert '  "kind": "s3"' in shell("show", "clicks", "bad").out.splitlines()


def test_unreadable_progress_is_shown_unchanged(shell: Shell, clicks: Clicks, clock: ManualClock) -> None:
    partition = Partition(
        source_identifier="clicks|PARTITION",
        partition_key="p",
        status=PartitionStatus.UNASSIGNED,
        priority=clock.now(),
        unreadable_progress='["not an object"]',
    )
    clicks.store.create([partition])
    lines = shell("show", "clicks", "p").out.splitlines()
    assert lines[-2:] == ["progress, not readable:", '["not an object"]']


def test_missing_partition_is_named(shell: Shell, clicks: Clicks) -> None:
    ended = shell("show", "clicks", "nope")
    assert (ended.exit_code, ended.out) == (1, "")
    assert ended.err == "error: partition 'nope' of 'clicks|PARTITION' does not exist\n"


def test_source_lookup_uses_the_prefix(shell: Shell, clicks: Clicks) -> None:
    clicks.owner("b", prefix="staging").create_partitions({"p": {}})
    assert shell("show", "clicks", "p").exit_code == 1
    assert shell("show", "clicks", "p", "--prefix", "staging").exit_code == 0


def test_metrics_show_every_source_or_one(shell: Shell, clicks: Clicks, clock: ManualClock) -> None:
    clicks.leased("p", "q")
    clicks.parked("r")
    clicks.owner("b", source="orders").create_partitions({"o": {}})
    clock.advance(30)
    both = shell("metrics", "--json").records
    assert [record["source"] for record in both] == ["clicks", "orders"]
    assert both[0] == {
        "source": "clicks",
        "prefix": None,
        "source_identifier": "clicks|PARTITION",
        "partitions": {"UNASSIGNED": 0, "ASSIGNED": 2, "CLOSED": 1, "COMPLETED": 0},
        "expired_leases": 0,
        "parked": 1,
        "failing": 1,
        "oldest_waiting_seconds": None,
        "owners": {"host:a": 2},
        "suspended": None,
    }
    assert shell("metrics", "orders", "--json").records == both[1:]
    assert "  longest wait            30 s" in shell("metrics", "orders").out.splitlines()


def test_watch_repeats_until_interrupted(shell: Shell, clicks: Clicks, clock: ManualClock) -> None:
    clicks.waiting("p")
    pauses = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        clock.advance(seconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt

    shell.sleep = sleep
    ended = shell("partitions", "clicks", "--watch", "--interval", "5")
    assert (ended.exit_code, pauses) == (0, [5.0, 5.0])
    assert [line for line in ended.out.splitlines() if not line.startswith("partition ")] == [
        "00:00:00 UTC  clicks, every 5 s; Ctrl-C ends",
        "p          UNASSIGNED  waits 0 s",
        "00:00:05 UTC  clicks, every 5 s; Ctrl-C ends",
        "p          UNASSIGNED  waits 5 s",
    ]


@pytest.mark.parametrize("options", [["--watch", "--json"], ["--reverse"], ["--limit", "0"], ["--sort", "colour"]])
def test_invalid_options_are_wrong_usage(shell: Shell, clicks: Clicks, options: list[str]) -> None:
    ended = shell("partitions", "clicks", *options)
    assert (ended.exit_code, ended.out) == (2, "")
    assert ended.err.startswith("error: ") and ended.err.count("\n") == 1


def test_watermark_shows_what_holds_it(shell: Shell, clicks: Clicks) -> None:
    progress = ShardProgress(
        stream="clicks", shard_id="shardId-0", parent_shard_ids=(), starting_hash_key="0",
        ending_hash_key=str(2**128 - 1), delivered_until=clicks.clock.now(),
    )  # fmt: skip
    clicks.a.create_partitions({"clicks:1:shardId-0": progress.to_mapping()})
    clicks.clock.advance(60)
    assert shell("watermark", "clicks").out.splitlines() == [
        "sink       delivered until",
        "all sinks  2025-12-31T23:59:57.000000Z (63 s ago)",
        "held by             delivered until                         reason",
        "clicks:1:shardId-0  2025-12-31T23:59:57.000000Z (63 s ago)  no job reads it",
    ]
    IntervalLedger(clicks.a.view).begin(timedelta(hours=1), clicks.clock.now())
    assert shell("watermark", "clicks").out.splitlines()[2:4] == [
        "intervals of  next to report                           late records",
        "PT1H          2026-01-01T01:00:00.000000Z (in 59 min)  0",
    ]
    (record,) = shell("watermark", "clicks", "--json").records
    assert record["intervals"] == {"every": 3600, "next": "2026-01-01T01:00:00.000000Z", "late_records": 0}
    assert (record["until"], record["is_finished"], record["sinks"]) == ("2025-12-31T23:59:57.000000Z", False, {})
    assert [hold["reason"] for hold in record["held_by"]] == ["no job reads it"]


def test_source_without_times_of_arrival_has_no_watermark(shell: Shell, clicks: Clicks) -> None:
    clicks.waiting("p")
    ended = shell("watermark", "clicks")
    assert ended.out == "" and ended.err.startswith("Source clicks has no watermark: ")
    assert shell("watermark", "clicks", "--json").records[0]["until"] is None
