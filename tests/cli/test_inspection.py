"""The commands that only look."""

from __future__ import annotations

import pytest

from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus, format_instant
from airflow_provider_coordination.sources.progress import FailedItem, PartitionProgress
from tests.cli.conftest import Clicks, Shell
from tests.support.clock import ManualClock

OWNER = "vm-17:clicks_to_parquet:scheduled__2026-01-01T00:00:00+00:00:ingest:0:1:e5350be7"


def test_sources_are_listed_with_their_partitions_by_status(shell: Shell, clicks: Clicks) -> None:
    clicks.waiting("p", "q")
    clicks.completed("r")
    clicks.a.supply(lambda state: [])
    assert shell("sources").out.splitlines() == [
        "source  UNASSIGNED  ASSIGNED  CLOSED  COMPLETED",
        "clicks           2         0       0          1",
        "Other items: clicks|GLOBAL_STATE",
    ]


def test_sources_of_all_prefixes_are_listed_unless_one_is_given(shell: Shell, clicks: Clicks) -> None:
    clicks.waiting("p")
    clicks.owner("b", source="orders", prefix="staging").create_partitions({"o": {}})
    assert [(r["prefix"], r["source"]) for r in shell("sources", "--json").records] == [
        (None, "clicks"),
        ("staging", "orders"),
    ]
    assert [r["source"] for r in shell("sources", "--json", "--prefix", "staging").records] == ["orders"]


def test_an_empty_store_says_so(shell: Shell, clicks: Clicks) -> None:
    ended = shell("sources")
    assert (ended.exit_code, ended.out, ended.err) == (0, "", "The store has no sources.\n")


def test_partitions_are_listed_with_what_their_time_says(shell: Shell, clicks: Clicks, clock: ManualClock) -> None:
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


def test_nothing_is_cut_off_where_there_is_no_terminal(shell: Shell, clicks: Clicks) -> None:
    key = "k" * 300
    clicks.waiting(key)
    clicks.owner(OWNER).leases.acquire(1)
    out = shell("partitions", "clicks").out
    assert key in out and OWNER in out


def test_partitions_of_a_status_are_picked(shell: Shell, clicks: Clicks) -> None:
    clicks.leased("p")
    clicks.waiting("q")
    clicks.completed("r")
    records = shell("partitions", "clicks", "--status", "assigned", "--status", "COMPLETED", "--json").records
    assert [r["partition_key"] for r in records] == ["p", "r"]


def test_parked_partitions_are_picked(shell: Shell, clicks: Clicks) -> None:
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


def test_a_source_without_partitions_is_warned_of(shell: Shell, clicks: Clicks) -> None:
    ended = shell("partitions", "clikcs", "--json")
    assert (ended.exit_code, ended.out) == (0, "")
    assert "warning: source 'clikcs' has no partitions;" in ended.err


def test_what_a_terminal_would_obey_is_shown_escaped(shell: Shell, clicks: Clicks) -> None:
    clicks.waiting("\x1b[31mred\n")
    assert r"\x1b[31mred\n " in shell("partitions", "clicks").out


def test_a_partition_is_json_with_the_names_of_its_fields(shell: Shell, clicks: Clicks, clock: ManualClock) -> None:
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


def test_one_partition_is_shown_whole(shell: Shell, clicks: Clicks, clock: ManualClock) -> None:
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


def test_the_last_error_of_a_parked_partition_is_shown(shell: Shell, clicks: Clicks) -> None:
    clicks.parked("p")
    lines = shell("show", "clicks", "p").out.splitlines()
    assert "last_error         no luck" in lines and "reopen_at          never: parked" in lines


def test_a_partition_of_items_shows_how_many_are_done_its_position_and_what_cannot_be_read(
    shell: Shell, clicks: Clicks
) -> None:
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


def test_progress_that_cannot_be_read_is_shown_as_it_is(shell: Shell, clicks: Clicks, clock: ManualClock) -> None:
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


def test_a_partition_that_does_not_exist_is_named(shell: Shell, clicks: Clicks) -> None:
    ended = shell("show", "clicks", "nope")
    assert (ended.exit_code, ended.out) == (1, "")
    assert ended.err == "error: partition 'nope' of 'clicks|PARTITION' does not exist\n"


def test_the_prefix_is_part_of_where_a_source_is_looked_for(shell: Shell, clicks: Clicks) -> None:
    clicks.owner("b", prefix="staging").create_partitions({"p": {}})
    assert shell("show", "clicks", "p").exit_code == 1
    assert shell("show", "clicks", "p", "--prefix", "staging").exit_code == 0


def test_figures_are_shown_of_every_source_or_of_one(shell: Shell, clicks: Clicks, clock: ManualClock) -> None:
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


def test_watching_shows_them_again_until_the_person_has_seen_enough(
    shell: Shell, clicks: Clicks, clock: ManualClock
) -> None:
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
def test_options_that_make_no_sense_are_wrong_usage(shell: Shell, clicks: Clicks, options: list[str]) -> None:
    ended = shell("partitions", "clicks", *options)
    assert (ended.exit_code, ended.out) == (2, "")
    assert ended.err.startswith("error: ") and ended.err.count("\n") == 1
