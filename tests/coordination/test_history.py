"""The content of the history: pages of transitions and past owners, despite lost writes."""

from __future__ import annotations

import base64
import json
import random
import zlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.coordination.history import (
    MAX_PAGE_CHARACTERS,
    MAX_REASON_CHARACTERS,
    History,
    Holding,
    HoldingEnd,
    HoldingStart,
    Transition,
    deletion_of,
    holdings,
    pages_of,
    transition_of,
    transitions_in,
)
from airflow_provider_coordination.coordination.partition import (
    PARKED_UNTIL,
    ChangeKind,
    Partition,
    PartitionStatus,
    new_partition,
    progress_text,
)
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.support.depth import examples

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
PARTITIONS = "clicks|PARTITION"
FAMILY = "clicks|HISTORY"
LEASE = timedelta(seconds=60)
A, B = "host-a:dag:run:task:-1:1:aaaa", "host-b:dag:run:task:-1:1:bbbb"


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


class PartitionHistory:
    """A partition that changes second by second, and its transitions."""

    def __init__(self, key: str = "p") -> None:
        self.partition = replace(new_partition(PARTITIONS, key, NOW), version=1)
        self.recorded: list[Transition] = []

    def becomes(self, partition: Partition, seconds: float) -> None:
        transition = transition_of(partition, partition.version + 1, at(seconds))
        self.partition = partition.written()
        if transition is not None:
            self.recorded.append(transition)

    def acquired(self, owner: str, seconds: float) -> None:
        self.becomes(self.partition.acquired(owner, at(seconds) + LEASE, at(seconds)), seconds)

    def completed(self, seconds: float) -> None:
        self.becomes(self.partition.completed(at(seconds)), seconds)

    def given_up(self, seconds: float) -> None:
        self.becomes(self.partition.given_up(at(seconds)), seconds)

    def holdings(self, *, without: Sequence[int] = (), now: float | None = None) -> list[Holding]:
        """Return them as recorded, without some of the transitions.

        :param now: the second at which the partition is known as it is; None where it is not.
        """
        recorded = [transition for number, transition in enumerate(self.recorded) if number not in without]
        return holdings(recorded, [] if now is None else [self.partition], now=at(now or 0)).get("p", [])


# Transitions


def test_transition_reports_the_state_before_and_after() -> None:
    life = PartitionHistory()
    life.acquired(A, 1)
    life.becomes(life.partition.failed("OSError: no").resting(at(100)), 5)
    assert life.recorded == [
        Transition(
            partition_key="p",
            at=at(1),
            version=2,
            status=PartitionStatus.ASSIGNED,
            owner=A,
            until=at(61),
            previous_status=PartitionStatus.UNASSIGNED,
            kind=ChangeKind.ACQUIRED,
            reason="acquired",
        ),
        Transition(
            partition_key="p",
            at=at(5),
            version=3,
            status=PartitionStatus.CLOSED,
            until=at(100),
            previous_status=PartitionStatus.ASSIGNED,
            previous_owner=A,
            previous_until=at(61),
            kind=ChangeKind.FAILED,
            reason="failed: OSError: no",
        ),
    ]


def test_change_without_new_status_or_owner_is_no_transition() -> None:
    life = PartitionHistory()
    life.acquired(A, 1)
    held = life.partition
    for same in (
        held,
        held.renewed(at(90)),
        held.with_progress({"n": 1}).recovered(),
        held.failed("no"),
        held.acquired(A, at(200)),
        held.given_up(at(3)).acquired(A, at(90)),
    ):
        assert transition_of(same, 9, NOW) is None


def test_deletion_records_the_user_and_truncates_the_reason() -> None:
    held = new_partition(PARTITIONS, "p", NOW).acquired(A, at(60)).written()
    deleted = deletion_of(held.because(ChangeKind.DELETED, "deleted by hand: " + "x" * 1000, "ann"), at(9))
    assert (deleted.status, deleted.previous_owner, deleted.previous_until, deleted.by) == (None, A, at(60), "ann")
    assert len(deleted.reason) == MAX_REASON_CHARACTERS
    assert deletion_of(held, at(9)).reason == "deleted"
    assert deleted.kind is deletion_of(held, at(9)).kind is ChangeKind.DELETED


# Pages

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
instants = st.integers(0, 10**12).map(lambda ms: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms))
transitions = st.builds(
    Transition,
    partition_key=texts,
    at=instants,
    version=st.integers(0, 2**60),
    status=st.none() | st.sampled_from(PartitionStatus),
    previous_status=st.sampled_from(PartitionStatus),
    kind=st.sampled_from(ChangeKind),
    reason=texts,
    owner=st.none() | texts,
    until=st.none() | instants | st.just(PARKED_UNTIL),
    previous_owner=st.none() | texts,
    previous_until=st.none() | instants,
    by=st.none() | texts,
)


@settings(max_examples=examples(15))
@given(st.lists(transitions, max_size=12))
def test_pages_read_back_as_written(written: list[Transition]) -> None:
    pages = pages_of(FAMILY, written, NOW, "me")
    assert [transition for page in pages for transition in transitions_in(page)] == written


def test_page_stays_small_with_any_content() -> None:
    chance = random.Random(7)
    many = [replace(a_transition(n), partition_key=chance.randbytes(300).hex()) for n in range(300)]
    pages = pages_of(FAMILY, many, NOW, "me")
    assert len(pages) > 1
    assert len({page.partition_key for page in pages}) == len(pages)
    assert all(len(progress_text(page)) <= MAX_PAGE_CHARACTERS + 100 for page in pages)
    assert [transition for page in pages for transition in transitions_in(page)] == many


def test_two_hundred_transitions_fit_into_a_few_kilobytes() -> None:
    key = "clickstream-landing|events/2026/01/01/part-{:08d}.json.gz"
    [page] = pages_of(FAMILY, [replace(a_transition(n), partition_key=key.format(n)) for n in range(200)], NOW, "me")
    assert len(progress_text(page)) < 4096


def test_unreadable_page_is_skipped() -> None:
    [page] = pages_of(FAMILY, [a_transition(1)], NOW, "me")
    packed = page.progress["packed"]
    odd = [
        '{"texts": [], "transitions": 5}',
        '{"texts": null, "transitions": []}',
        '{"texts": {}, "transitions": [0, []]}',
    ]
    for progress in (
        *({}, {"packed": 7}, {"packed": "!"}, {"packed": "AAAA"}, {"packed": packed[:20]}, {"newer": []}),
        *({"packed": base64.b64encode(zlib.compress(text.encode())).decode()} for text in odd),
    ):
        assert list(transitions_in(replace(page, progress=progress))) == []
    assert list(transitions_in(page)) == [a_transition(1)]


def a_transition(n: int, *, key: str = "p", seconds: float | None = None) -> Transition:
    return Transition(
        partition_key=key,
        at=at(n if seconds is None else seconds),
        version=n,
        status=PartitionStatus.ASSIGNED,
        owner=A,
        previous_status=PartitionStatus.UNASSIGNED,
        kind=ChangeKind.ACQUIRED,
        reason="acquired",
    )


def written(*pages: Sequence[Transition]) -> History:
    """Return a history of these pages, each written when its last transition happened."""
    store = InMemoryStore()
    for number, page in enumerate(pages):
        store.create(pages_of(FAMILY, page, page[-1].at, f"worker-{number}"))
    store.create([new_partition(FAMILY, "something else", NOW).completed(at(3))])
    return History(store, FAMILY)


def test_pages_of_several_owners_merge_by_time() -> None:
    history = written([a_transition(1), a_transition(4)], [a_transition(2), a_transition(5)], [a_transition(3)])
    assert [t.version for t in history.since(NOW)] == [1, 2, 3, 4, 5]
    assert [t.version for t in history.since(at(4))] == [4, 5]
    assert [t.version for t in history.between(at(2), at(4)).transitions] == [2, 3, 4]
    assert history.since(at(6)) == []


def test_oldest_pages_beyond_the_limit_are_left_out() -> None:
    history = written(*([a_transition(n)] for n in range(1, 150)))
    recorded = history.between(NOW, pages=120)
    assert not recorded.complete
    assert [t.version for t in recorded.transitions] == list(range(30, 150))[-len(recorded.transitions) :]
    assert 119 <= len(recorded.transitions) <= 120
    assert history.between(NOW).complete
    recorded = history.between(NOW, transitions=20)
    assert (recorded.complete, [t.version for t in recorded.transitions]) == (False, list(range(130, 150)))
    assert len(history.since(NOW)) == 149


def test_transitions_of_one_partition_are_ordered_by_version() -> None:
    history = written(
        [a_transition(1), a_transition(7, key="q", seconds=1)],
        [a_transition(4, seconds=2), a_transition(9, key="q", seconds=2)],
        [a_transition(2, seconds=3), a_transition(3, seconds=4)],  # a clock that is late
    )
    assert [t.version for t in history.of("p", NOW)] == [1, 2, 3, 4]
    assert [t.version for t in history.of("p", NOW, limit=2)] == [2, 3]
    assert history.of("p/", NOW) == []


def test_page_rewritten_after_a_lost_response_counts_once() -> None:
    history = written([a_transition(1), a_transition(2)], [a_transition(1), a_transition(2)])
    assert [t.version for t in history.since(NOW)] == [1, 2]
    assert [t.version for t in history.of("p", NOW)] == [1, 2]


# Holdings


def test_life_is_reported_from_owner_to_owner() -> None:
    life = PartitionHistory()
    life.acquired(A, 1)
    life.becomes(life.partition.renewed(at(80)), 20)
    life.given_up(30)
    life.acquired(B, 40)
    life.completed(50)
    assert life.holdings() == [
        Holding(
            owner=A,
            began_at=at(1),
            begin=HoldingStart.ACQUIRED,
            ended_at=at(30),
            end=HoldingEnd.RELEASED,
            reason="given up",
        ),
        Holding(
            owner=B,
            began_at=at(40),
            begin=HoldingStart.ACQUIRED,
            ended_at=at(50),
            end=HoldingEnd.COMPLETED,
            reason="completed",
        ),
    ]
    assert life.holdings(now=500) == life.holdings()


def test_current_holding_has_no_end() -> None:
    life = PartitionHistory()
    life.acquired(A, 1)
    assert life.holdings() == [Holding(owner=A, began_at=at(1), begin=HoldingStart.ACQUIRED)]
    assert life.holdings(now=60) == life.holdings()


def test_expired_lease_without_a_successor_ends_at_its_expiry() -> None:
    life = PartitionHistory()
    life.acquired(A, 1)
    life.becomes(life.partition.renewed(at(80)), 20)
    [dead] = life.holdings(now=500)
    assert (dead.began_at, dead.ended_at, dead.end) == (at(1), at(80), HoldingEnd.EXPIRED)
    assert dead.reason == "no owner has taken it over yet"


def test_expired_lease_ends_at_expiry_and_not_at_takeover() -> None:
    life = PartitionHistory()
    life.acquired(A, 1)
    life.acquired(B, 70)
    assert life.holdings() == [
        Holding(
            owner=A,
            began_at=at(1),
            begin=HoldingStart.ACQUIRED,
            ended_at=at(61),
            end=HoldingEnd.EXPIRED,
            reason="taken over",
        ),
        Holding(owner=B, began_at=at(70), begin=HoldingStart.TAKEN_OVER),
    ]


def test_running_lease_that_is_taken_away_is_taken_over() -> None:
    life = PartitionHistory()
    life.acquired(A, 1)
    life.acquired(B, 20)
    assert [(h.ended_at, h.end) for h in life.holdings()] == [(at(20), HoldingEnd.TAKEN_OVER), (None, HoldingEnd.HELD)]


def test_unreported_worker_held_until_lease_expiry() -> None:
    life = PartitionHistory()
    life.acquired(A, 1)
    life.acquired(B, 70)
    first, second = life.holdings(without=[0])
    assert first == Holding(owner=A, ended_at=at(61), end=HoldingEnd.EXPIRED, reason="taken over")
    assert (second.owner, second.began_at) == (B, at(70))


def test_unreported_worker_is_known_from_the_partition() -> None:
    life = PartitionHistory()
    life.acquired(A, 1)
    assert life.holdings(without=[0], now=2) == [Holding(owner=A, began_at=at(1))]
    life.partition = replace(life.partition, held_since=None)  # as who does not say so leaves it
    assert life.holdings(without=[0], now=2) == [Holding(owner=A)]


def test_unreported_end_is_unknown_at_the_lease_expiry() -> None:
    life = PartitionHistory()
    life.acquired(A, 1)
    life.given_up(30)
    life.acquired(B, 90)
    first, second = life.holdings(without=[1])
    assert (first.owner, first.end, first.ended_at) == (A, HoldingEnd.UNKNOWN, at(61))
    assert (second.owner, second.end) == (B, HoldingEnd.HELD)
    life.given_up(95)
    assert [h.end for h in life.holdings(without=[1, 3], now=96)] == [HoldingEnd.UNKNOWN, HoldingEnd.UNKNOWN]


def test_unreported_end_precedes_the_current_owner() -> None:
    life = PartitionHistory()
    life.acquired(A, 1)
    life.given_up(30)
    life.acquired(B, 40)
    first, second = life.holdings(without=[1, 2], now=45)
    assert (first.end, first.ended_at, second.began_at) == (HoldingEnd.UNKNOWN, at(40), at(40))


def test_unreported_completion_is_known_from_the_partition() -> None:
    life = PartitionHistory()
    life.acquired(A, 1)
    life.completed(30)
    assert life.holdings(without=[1], now=31) == [
        Holding(owner=A, began_at=at(1), begin=HoldingStart.ACQUIRED, ended_at=at(30), end=HoldingEnd.COMPLETED)
    ]


def test_stale_partition_read_does_not_change_the_history() -> None:
    life = PartitionHistory()
    life.acquired(A, 1)
    before = life.partition
    life.completed(30)
    assert holdings(life.recorded, [before], now=at(31))["p"] == life.holdings()


def test_unreported_owner_is_known_from_the_next_transition() -> None:
    life = PartitionHistory()
    life.acquired(A, 1)
    life.given_up(10)
    life.acquired("c", 20)
    life.acquired(B, 100)
    assert [(h.owner, h.end) for h in life.holdings(without=[1, 2])] == [
        (A, HoldingEnd.UNKNOWN),
        ("c", HoldingEnd.EXPIRED),
        (B, HoldingEnd.HELD),
    ]


def test_each_end_of_a_holding_has_its_name() -> None:
    for change, end in [
        (lambda p: p.given_up(at(5)), HoldingEnd.RELEASED),
        (lambda p: p.completed(at(5)), HoldingEnd.COMPLETED),
        (lambda p: p.closed(at(500)), HoldingEnd.CLOSED),
        (lambda p: p.failed("no").given_up(at(5)), HoldingEnd.FAILED),
        (lambda p: p.failed("no").resting(at(500)), HoldingEnd.FAILED),
        (lambda p: p.failed("no").resting(PARKED_UNTIL), HoldingEnd.PARKED),
        (lambda p: p.resting(PARKED_UNTIL).because(ChangeKind.PARKED, "parked by hand", "ann"), HoldingEnd.PARKED),
        (lambda p: p.reset({}, at(5)).because(ChangeKind.RESET, "reset by hand", "ann"), HoldingEnd.RESET),
        (lambda p: p.given_up(at(5)).because(ChangeKind.RELEASED, "released by hand", "ann"), HoldingEnd.RELEASED),
        (lambda p: p.acquired(B, at(90)).because(ChangeKind.HANDED_OVER), HoldingEnd.HANDED_OVER),
        (lambda p: p.awaiting(at(90)), HoldingEnd.AWAITING),
    ]:
        life = PartitionHistory()
        life.acquired(A, 1)
        life.becomes(change(life.partition), 5)
        first = life.holdings()[0]
        assert (first.owner, first.ended_at, first.end) == (A, at(5), end)
        assert (first.by == "ann") == ("by hand" in first.reason)
    assert holdings([deletion_of(life.partition, at(6))], now=NOW)["p"][-1].end is HoldingEnd.DELETED


@pytest.mark.parametrize(
    ("kind", "words", "end"),
    [
        (ChangeKind.RELEASED, "failed disk is replaced", HoldingEnd.RELEASED),
        (ChangeKind.REOPENED, "reset of the router: it was handed over", HoldingEnd.RELEASED),
        (ChangeKind.FAILED, "released by hand", HoldingEnd.FAILED),
        (ChangeKind.RESET, "failed", HoldingEnd.RESET),
    ],
)
def test_holding_end_follows_the_kind_and_not_the_text(kind: ChangeKind, words: str, end: HoldingEnd) -> None:
    life = PartitionHistory()
    life.acquired(A, 1)
    life.becomes(life.partition.given_up(at(5)).because(kind, words, "ann"), 5)
    assert (life.holdings()[0].end, life.holdings()[0].reason) == (end, words)


def test_handover_named_only_in_the_text_is_a_takeover() -> None:
    life = PartitionHistory()
    life.acquired(A, 1)
    life.becomes(life.partition.acquired(B, at(90)).because(ChangeKind.TAKEN_OVER, "handed over"), 5)
    assert [(held.begin, held.end) for held in life.holdings()] == [
        (HoldingStart.ACQUIRED, HoldingEnd.TAKEN_OVER),
        (HoldingStart.TAKEN_OVER, HoldingEnd.HELD),
    ]


@pytest.mark.parametrize("kind", [[], ["of a newer version"], [None], [7]])
def test_transition_of_unknown_kind_is_read(kind: list[Any]) -> None:
    record = ["p", 0, 3, "UNASSIGNED", None, None, "ASSIGNED", 0, None, 1, None, *kind]
    content = json.dumps({"texts": [A, "failed: OSError: no"], "transitions": [record]})
    [page] = pages_of(FAMILY, [a_transition(1)], NOW, "me")
    page = replace(page, progress={"packed": base64.b64encode(zlib.compress(content.encode())).decode()})
    [read] = transitions_in(page)
    assert (read.kind, read.previous_owner, read.reason) == (ChangeKind.OTHER, A, "failed: OSError: no")
    assert [held.end for held in holdings([read], now=NOW)["p"]] == [HoldingEnd.RELEASED]


def test_awaiting_partition_is_held_by_no_process() -> None:
    life = PartitionHistory()
    life.acquired(A, 1)
    life.becomes(life.partition.awaiting(at(600)), 5)
    life.completed(9)
    second = life.holdings()[1]
    assert (second.owner, second.begin, second.began_at) == (f"{A}:acknowledgment", HoldingStart.AWAITING, at(5))
    assert (second.ended_at, second.end) == (at(9), HoldingEnd.COMPLETED)


def test_versions_order_holdings_despite_clocks_without_overlap() -> None:
    life = PartitionHistory()
    life.acquired(A, 10)
    life.given_up(12)  # of a clock that is three seconds fast
    life.acquired(B, 9.5)
    life.completed(9.9)
    for recorded in (life.recorded, life.recorded[::-1], sorted(life.recorded, key=lambda t: t.at)):
        first, second = holdings(recorded, now=NOW)["p"]
        assert (first.owner, first.began_at, first.ended_at) == (A, at(10), at(12))
        assert (second.owner, second.began_at, second.ended_at) == (B, at(12), at(12))


def test_each_partition_has_its_own_life() -> None:
    one, other = PartitionHistory("p"), PartitionHistory("q")
    one.acquired(A, 1)
    other.acquired(B, 2)
    one.completed(3)
    found = holdings([*one.recorded, *other.recorded], now=NOW)
    assert {key: [h.owner for h in held] for key, held in found.items()} == {"p": [A], "q": [B]}
    assert holdings([], [new_partition(PARTITIONS, "p", NOW)], now=NOW) == {}
