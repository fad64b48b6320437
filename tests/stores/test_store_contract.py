"""The contract of every store."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_coordination.coordination.browsing import (
    BrowsePage,
    BrowsePosition,
    Filter,
    PageRequest,
    SortOrder,
)
from airflow_provider_coordination.coordination.errors import (
    ConfigurationError,
    PartitionUpdateError,
    ProgressError,
)
from airflow_provider_coordination.coordination.partition import (
    MAX_KEY_BYTES,
    MAX_PROGRESS_BYTES,
    MAX_SOURCE_IDENTIFIER_BYTES,
    PARKED_UNTIL,
    Partition,
    PartitionStatus,
    check_partition_key,
    with_keys,
)
from airflow_provider_coordination.coordination.store import CoordinationStore
from tests.support.partitions import NOW, SOURCE, a_partition, acquisition, keys


def test_repeated_initialization_keeps_partitions(store: CoordinationStore) -> None:
    store.create([a_partition("a")])
    store.initialize()
    assert store.get(SOURCE, "a") == a_partition("a")


def test_partition_reads_back_unchanged(store: CoordinationStore) -> None:
    written = a_partition("a", checkpoint="49", children=["x", "ü", None, 1.5], nested={"deep": [True]})
    assert store.create([written]) == ["a"]
    assert store.get(SOURCE, "a") == written


def test_creation_leaves_an_existing_partition_alone(store: CoordinationStore) -> None:
    store.create([a_partition("a", first=True)])
    assert store.create([a_partition("a", first=False), a_partition("b")]) == ["b"]
    assert store.get(SOURCE, "a") == a_partition("a", first=True)


def test_many_partitions_are_created_at_once(store: CoordinationStore) -> None:
    many = [a_partition(f"p{n:04}") for n in range(1, 1001)]
    assert len(store.create(many)) == 1000
    assert store.count_by_status(SOURCE)[PartitionStatus.UNASSIGNED] == 1000


def test_absent_partition_is_none(store: CoordinationStore) -> None:
    assert store.get(SOURCE, "nowhere") is None


def test_many_partitions_are_read_in_their_current_state(store: CoordinationStore) -> None:
    existing = [a_partition(f"p{n:04}", checkpoint=str(n)) for n in range(0, 2500, 5)]
    store.create(existing)
    [acquired] = store.acquire(acquisition(1))
    asked = [f"p{n:04}" for n in range(2500)]
    assert store.get_many(SOURCE, asked) == {p.partition_key: p for p in existing} | {acquired.partition_key: acquired}
    assert store.get_many("test|orders|PARTITION", asked) == {}
    assert list(store.get_many(SOURCE, ["p0005", "p0001", "p0005"])) == ["p0005"]
    assert store.get_many(SOURCE, []) == {}


def test_existing_keys_are_found_among_many(store: CoordinationStore) -> None:
    existing = [f"p{n:04}" for n in range(0, 2500, 5)]
    store.create([a_partition(key) for key in existing])
    asked = [f"p{n:04}" for n in range(2500)]
    assert store.existing_keys(SOURCE, asked) == set(existing)
    assert store.existing_keys("test|orders|PARTITION", asked) == set()
    assert store.existing_keys(SOURCE, ["p0000", "p0001", "p0000"]) == {"p0000"}
    assert store.existing_keys(SOURCE, []) == set()


def test_existing_keys_are_current(store: CoordinationStore) -> None:
    store.create([a_partition("a")])
    [acquired] = store.acquire(acquisition())
    assert store.existing_keys(SOURCE, ["a"]) == {"a"}
    store.delete(acquired)
    assert store.existing_keys(SOURCE, ["a"]) == set()


def test_transaction_takes_the_announced_number_of_items(store: CoordinationStore) -> None:
    store.create([a_partition("a")])
    [acquired] = store.acquire(acquisition())
    others = [a_partition(f"p{n:04}") for n in range(store.transaction_items - 1)]
    store.transact(update=[acquired.completed(NOW)], create=others[::3], new=others[1::3] + others[2::3])
    assert store.existing_keys(SOURCE, keys(others)) == set(keys(others))


def test_acquisition_writes_owner_timeout_and_next_version(store: CoordinationStore) -> None:
    store.create([a_partition("a", checkpoint="7")])
    [acquired] = store.acquire(acquisition())
    assert acquired == store.get(SOURCE, "a")
    assert acquired.status is PartitionStatus.ASSIGNED
    assert (acquired.owner, acquired.version) == ("me", 1)
    assert acquired.ownership_timeout == acquired.priority == NOW + timedelta(seconds=60)
    assert acquired.progress == {"checkpoint": "7"}


def test_lease_keeps_its_start_until_it_ends(store: CoordinationStore) -> None:
    store.create([a_partition("a")])
    [acquired] = store.acquire(acquisition())
    [renewed] = store.transact(update=[acquired.renewed(NOW + timedelta(seconds=90))])
    assert (acquired.held_since, renewed.held_since) == (NOW, NOW)
    [given_up] = store.transact(update=[renewed.given_up(NOW)])
    found = store.get(SOURCE, "a")
    assert found is not None and (given_up.held_since, found.held_since) == (None, None)


def test_acquisition_takes_oldest_partitions_up_to_the_limit(store: CoordinationStore) -> None:
    store.create(
        [a_partition("young", age_seconds=1), a_partition("old", age_seconds=9), a_partition("mid", age_seconds=5)]
    )
    assert keys(store.acquire(acquisition(2))) == ["old", "mid"]
    assert keys(store.acquire(acquisition(2))) == ["young"]
    assert store.acquire(acquisition(2)) == []


def test_expired_leases_precede_due_closed_and_unassigned_partitions(store: CoordinationStore) -> None:
    store.create([a_partition("unassigned", age_seconds=9000), a_partition("closed"), a_partition("expired")])
    closed, expired = store.get(SOURCE, "closed"), store.get(SOURCE, "expired")
    assert closed is not None and expired is not None
    store.transact(
        update=[
            closed.closed(NOW - timedelta(seconds=1)),
            expired.acquired("dead", NOW - timedelta(seconds=6)),
        ]
    )
    acquired = store.acquire(acquisition(3))
    assert keys(acquired) == ["expired", "closed", "unassigned"]
    assert all(p.owner == "me" and p.reopen_at is None for p in acquired)


def test_partitions_not_due_are_not_acquired(store: CoordinationStore) -> None:
    store.create(
        [a_partition("live"), a_partition("within-margin"), a_partition("closed"), a_partition("later", age_seconds=-1)]
    )
    live, margin, closed = (store.get(SOURCE, key) for key in ("live", "within-margin", "closed"))
    assert live and margin and closed
    store.transact(
        update=[
            live.acquired("other", NOW + timedelta(seconds=1)),
            margin.acquired("other", NOW - timedelta(seconds=4)),
            closed.closed(NOW + timedelta(seconds=1)),
        ]
    )
    assert store.acquire(acquisition()) == []


def test_given_up_partition_queues_by_its_time(store: CoordinationStore) -> None:
    store.create([a_partition("a", age_seconds=9), a_partition("b", age_seconds=5)])
    [first] = store.acquire(acquisition(1))
    store.transact(update=[first.given_up(NOW)])
    assert keys(store.acquire(acquisition(2))) == ["b", "a"]


def test_sources_do_not_see_each_other(store: CoordinationStore) -> None:
    store.create([a_partition("a"), a_partition("a", source="test|orders|PARTITION")])
    assert keys(store.acquire(acquisition())) == ["a"]
    assert store.acquire(acquisition()) == []
    assert store.count_by_status("test|orders|PARTITION")[PartitionStatus.UNASSIGNED] == 1


def test_update_of_an_old_version_changes_nothing(store: CoordinationStore) -> None:
    store.create([a_partition("a")])
    [mine] = store.acquire(acquisition())
    [newer] = store.transact(update=[mine.with_progress({"by": "me"})])
    with pytest.raises(PartitionUpdateError, match=r"'a'.*version 1"):
        store.transact(update=[mine.with_progress({"by": "a stale value"})])
    assert store.get(SOURCE, "a") == newer


def test_update_of_an_absent_partition_is_refused(store: CoordinationStore) -> None:
    with pytest.raises(PartitionUpdateError):
        store.transact(update=[a_partition("a")])


def test_transaction_updates_and_creates_together(store: CoordinationStore) -> None:
    store.create([a_partition("parent")])
    [parent] = store.acquire(acquisition())
    store.transact(update=[parent.completed(NOW)], create=[a_partition("child-1"), a_partition("child-2")])
    assert store.count_by_status(SOURCE) == {
        PartitionStatus.UNASSIGNED: 2,
        PartitionStatus.ASSIGNED: 0,
        PartitionStatus.CLOSED: 0,
        PartitionStatus.COMPLETED: 1,
    }


def test_refused_transaction_writes_nothing(store: CoordinationStore) -> None:
    store.create([a_partition("a"), a_partition("b")])
    a, b = store.acquire(acquisition())
    store.transact(update=[b.with_progress({"moved": True})])
    with pytest.raises(PartitionUpdateError):
        store.transact(update=[a.completed(NOW), b.completed(NOW)], create=[a_partition("child")])
    assert store.get(SOURCE, "a") == a
    assert store.get(SOURCE, "child") is None


def test_transaction_is_refused_if_its_preconditions_changed(store: CoordinationStore) -> None:
    store.create([a_partition("a"), a_partition("b")])
    a, b = store.acquire(acquisition())
    store.transact(update=[a.with_progress({"read": 1})], unchanged=[b])
    [a] = [p for p in store.query(SOURCE, PartitionStatus.ASSIGNED) if p.partition_key == "a"]
    store.transact(update=[b.completed(NOW)])
    with pytest.raises(PartitionUpdateError):
        store.transact(update=[a.completed(NOW)], unchanged=[b])
    assert store.get(SOURCE, "a") == a


def test_new_partitions_are_written_with_the_transaction(store: CoordinationStore) -> None:
    store.create([a_partition("a")])
    [a] = store.acquire(acquisition())
    new = [a_partition("c"), a_partition("b").with_progress({"n": 1})]
    store.transact(update=[a.with_progress({"read": 1})], new=new)
    assert [store.get(SOURCE, key) for key in "cb"] == new
    assert store.get(SOURCE, "a") == a.with_progress({"read": 1}).written()


def test_new_partitions_keep_individual_and_shared_values(store: CoordinationStore) -> None:
    store.create([a_partition("a")])
    [a] = store.acquire(acquisition())
    shared = a_partition("", age_seconds=5).with_progress({"of": "all"}).completed(NOW)
    odd = with_keys(shared, ["%s", "?", ":x", "it's", '"q"', "ключ", "\U0001f511", "100%", "a\\b", "{}"])
    others = [
        a_partition("one").with_progress({"n": 1}),
        a_partition("real").with_progress({"n": 1.0}),
        a_partition("true").with_progress({"n": True}),
        a_partition("failed", age_seconds=9).failed("100% of it"),
        a_partition("closed").closed(NOW),
        replace(shared, partition_key="later", priority=NOW + timedelta(seconds=1), version=7),
        replace(shared, partition_key="of another family", source_identifier="test|clicks|CLAIM"),
    ]
    store.transact(update=[a.with_progress({"read": 1})], new=[*others, *odd])
    for each in (*odd, *others):
        stored = store.get(each.source_identifier, each.partition_key)
        assert stored == each
        assert json.dumps(stored.progress) == json.dumps(each.progress)
    assert store.existing_keys(SOURCE, keys(odd)) == set(keys(odd))


def test_transaction_is_refused_if_a_new_partition_exists(store: CoordinationStore) -> None:
    store.create([a_partition("a"), a_partition("b").with_progress({"old": True})])
    a, b = store.acquire(acquisition())
    with pytest.raises(PartitionUpdateError, match="'b'"):
        store.transact(update=[a.completed(NOW)], new=[a_partition("b"), a_partition("c")], create=[a_partition("d")])
    assert (store.get(SOURCE, "a"), store.get(SOURCE, "b")) == (a, b)
    assert (store.get(SOURCE, "c"), store.get(SOURCE, "d")) == (None, None)
    store.transact(update=[a.completed(NOW)], new=[a_partition("c")], create=[a_partition("b")])
    assert store.get(SOURCE, "b") == b


def test_deletion_is_conditional_on_the_version(store: CoordinationStore) -> None:
    store.create([a_partition("a")])
    [mine] = store.acquire(acquisition())
    with pytest.raises(PartitionUpdateError):
        store.delete(a_partition("a"))
    store.delete(mine)
    assert store.get(SOURCE, "a") is None


def test_query_pages_through_a_status_in_order(store: CoordinationStore) -> None:
    store.create([a_partition(f"p{n}", age_seconds=n // 3) for n in range(10)])
    pages, last = [], None
    while page := store.query(SOURCE, PartitionStatus.UNASSIGNED, after=last, limit=4):
        pages.append(keys(page))
        last = page[-1]
    assert [len(page) for page in pages] == [4, 4, 2]
    assert [key for page in pages for key in page] == ["p9", "p6", "p7", "p8", "p3", "p4", "p5", "p0", "p1", "p2"]


def test_store_shares_no_objects_with_its_caller(store: CoordinationStore) -> None:
    progress = {"landed": ["x"]}
    store.create([a_partition("a", **progress)])
    progress["landed"].append("y")
    read = store.get(SOURCE, "a")
    assert read is not None
    read.progress["landed"].append("z")  # type: ignore[attr-defined]
    assert store.get(SOURCE, "a") == a_partition("a", landed=["x"])


def test_competing_threads_own_each_partition_once(store: CoordinationStore) -> None:
    store.create([a_partition(f"p{n:03}") for n in range(100)])

    def compete(worker: int) -> list[str]:
        mine: list[str] = []
        while taken := store.acquire(acquisition(3, owner=f"worker-{worker}")):
            mine += keys(taken)
        return mine

    with ThreadPoolExecutor(8) as pool:
        taken = [key for mine in pool.map(compete, range(8)) for key in mine]
    assert len(taken) == len(set(taken)) == 100


# What a store says of itself


def test_store_reports_its_kind(store: CoordinationStore, store_kind: str) -> None:
    assert store.kind == store_kind


def test_store_lists_its_sources(store: CoordinationStore) -> None:
    assert store.source_identifiers() == []
    store.create(
        [a_partition("a"), a_partition("b"), a_partition("a", source="Ä|PARTITION"), a_partition("a", source="Z")]
    )
    assert store.source_identifiers() == ["Z", SOURCE, "Ä|PARTITION"]


def test_counts_cover_the_requested_statuses(store: CoordinationStore) -> None:
    store.create([a_partition("a"), a_partition("b"), a_partition("c")])
    store.acquire(acquisition(1))
    wanted = (PartitionStatus.ASSIGNED, PartitionStatus.COMPLETED)
    assert store.count_by_status(SOURCE, wanted) == {PartitionStatus.ASSIGNED: 1, PartitionStatus.COMPLETED: 0}
    assert store.count_by_status(SOURCE, ()) == {}


def test_query_since_an_instant_omits_older_partitions(store: CoordinationStore) -> None:
    store.create([a_partition(f"p{n}", age_seconds=9 - n) for n in range(10)])
    since = NOW - timedelta(seconds=4)
    assert keys(store.query(SOURCE, PartitionStatus.UNASSIGNED, since=since)) == ["p5", "p6", "p7", "p8", "p9"]
    first = store.query(SOURCE, PartitionStatus.UNASSIGNED, since=since, limit=2)
    assert keys(store.query(SOURCE, PartitionStatus.UNASSIGNED, since=since, after=first[-1])) == ["p7", "p8", "p9"]


def test_completed_partitions_are_found_by_completion_time(store: CoordinationStore) -> None:
    store.create([a_partition("a", age_seconds=100), a_partition("b", age_seconds=100)])
    a, b = store.acquire(acquisition())
    store.transact(update=[a.completed(NOW - timedelta(microseconds=1)), b.completed(NOW)])
    assert keys(store.query(SOURCE, PartitionStatus.COMPLETED, since=NOW)) == ["b"]


# What is kept of a partition


def test_failures_are_kept_and_forgotten(store: CoordinationStore) -> None:
    store.create([a_partition("a")])
    [mine] = store.acquire(acquisition())
    [failed] = store.transact(update=[mine.failed("IOError: 'täble' is gone\nat line 3 😀").given_up(NOW)])
    assert store.get(SOURCE, "a") == failed
    assert (failed.attempts, failed.last_error) == (1, "IOError: 'täble' is gone\nat line 3 😀")
    [again] = store.acquire(acquisition())
    assert (again.attempts, again.last_error) == (failed.attempts, failed.last_error)
    store.transact(update=[again.recovered()])
    [stored] = store.query(SOURCE, PartitionStatus.ASSIGNED)
    assert (stored.attempts, stored.last_error) == (0, None)


def test_closed_partition_keeps_reopening_time_and_count(store: CoordinationStore) -> None:
    store.create([a_partition("a")])
    [mine] = store.acquire(acquisition())
    [closed] = store.transact(update=[mine.closed(NOW + timedelta(seconds=1, microseconds=7))])
    assert store.get(SOURCE, "a") == closed
    assert (closed.reopen_at, closed.closed_count) == (NOW + timedelta(seconds=1, microseconds=7), 1)


@pytest.mark.parametrize("text", ["{not JSON", "[1, 2]", '"text"', "{'a': 1} ü 😀 " + "x" * 100_000])
def test_unreadable_progress_survives_every_write(store: CoordinationStore, text: str) -> None:
    store.create([replace(a_partition("a"), unreadable_progress=text)])
    [mine] = store.acquire(acquisition())
    assert (mine.progress, mine.unreadable_progress) == ({}, text)
    [closed] = store.transact(update=[mine.renewed(NOW + timedelta(hours=1)).failed("not JSON").closed(NOW)])
    assert store.get(SOURCE, "a") == closed
    assert store.query(SOURCE, PartitionStatus.CLOSED) == [closed]
    store.transact(update=[closed.completed(NOW)])
    assert store.query(SOURCE, PartitionStatus.COMPLETED)[0].unreadable_progress == text


def test_progress_that_is_not_json_is_refused(store: CoordinationStore) -> None:
    store.create([a_partition("a")])
    [mine] = store.acquire(acquisition())
    for wrong in ({"at": NOW}, {"number": float("nan")}, {"set": {1}}):
        with pytest.raises(ProgressError, match="its progress is not JSON"):
            store.transact(update=[mine.with_progress(wrong)], create=[a_partition("child")])
        with pytest.raises(ProgressError, match="its progress is not JSON"):
            store.create([a_partition("before"), a_partition("wrong", **wrong)])
    assert store.get(SOURCE, "a") == mine
    assert [store.get(SOURCE, key) for key in ("child", "before", "wrong")] == [None] * 3


@pytest.mark.parametrize("beyond", [0, 50_000])
def test_progress_is_kept_at_its_limit_and_beyond(store: CoordinationStore, beyond: int) -> None:
    fits = MAX_PROGRESS_BYTES - len('{"list":""}')
    large = a_partition("a", list="x" * (fits + beyond))
    store.create([large])
    assert store.get(SOURCE, "a") == large
    [acquired] = store.acquire(acquisition())
    [given_up] = store.transact(update=[acquired.given_up(NOW)])
    assert given_up.progress == large.progress


# Keys

AWKWARD_KEYS = [
    " ",
    " a",
    "%_*?[]'\"`;--\\",
    "A",
    "A ",
    "A\t",
    "a",
    "a ",
    "a  ",
    "a/b/../c",
    "a|b",
    "a\n",
    "e\u0301",  # é as two code points, and as one: two keys
    "z",
    "ß",
    "é",
    "ﬀ",
    "\uff5e",  # above the surrogates in UTF-16, below the emoji in code points
    "😀",
    "😀😀",
]


def test_keys_are_compared_by_every_character(store: CoordinationStore) -> None:
    assert set(store.create([a_partition(key, mine=key) for key in AWKWARD_KEYS])) == set(AWKWARD_KEYS)
    assert store.create([a_partition(key) for key in AWKWARD_KEYS]) == []
    for key in AWKWARD_KEYS:
        assert store.get(SOURCE, key) == a_partition(key, mine=key)


def test_keys_of_equal_age_are_ordered_by_code_points(store: CoordinationStore) -> None:
    store.create([a_partition(key) for key in reversed(AWKWARD_KEYS)])
    paged: list[Partition] = []
    while page := store.query(SOURCE, PartitionStatus.UNASSIGNED, after=paged[-1] if paged else None, limit=3):
        paged += page
    assert keys(paged) == sorted(AWKWARD_KEYS)


def test_awkward_keys_are_known(store: CoordinationStore) -> None:
    store.create([a_partition(key) for key in AWKWARD_KEYS[::2]])
    assert store.existing_keys(SOURCE, AWKWARD_KEYS) == set(AWKWARD_KEYS[::2])


def test_awkward_keys_are_acquired_updated_and_deleted(store: CoordinationStore) -> None:
    store.create([a_partition(key) for key in AWKWARD_KEYS])
    acquired = store.acquire(acquisition(len(AWKWARD_KEYS)))
    assert sorted(keys(acquired)) == sorted(AWKWARD_KEYS)
    for partition in acquired:
        [written] = store.transact(update=[partition.with_progress({"key": partition.partition_key})])
        store.delete(written)
        assert store.get(SOURCE, partition.partition_key) is None


@pytest.mark.parametrize("character", ["x", "é", "😀"])
def test_longest_names_are_kept(store: CoordinationStore, character: str) -> None:
    size = len(character.encode())
    source, key = character * (MAX_SOURCE_IDENTIFIER_BYTES // size), character * (MAX_KEY_BYTES // size)
    check_partition_key(key)
    longest = a_partition(key, source=source)
    assert store.create([longest]) == [key]
    [acquired] = store.acquire(acquisition(source=source))
    [completed] = store.transact(update=[acquired.completed(NOW)])
    assert store.query(source, PartitionStatus.COMPLETED) == [completed]
    assert store.source_identifiers() == [source]


def test_sources_differing_in_case_or_trailing_spaces_are_distinct(store: CoordinationStore) -> None:
    store.create([a_partition("a", source=source) for source in ("s", "S", "s ")])
    assert [len(store.query(source, PartitionStatus.UNASSIGNED)) for source in ("s", "S", "s ", "ś")] == [1, 1, 1, 0]


def test_first_of_equal_keys_is_created(store: CoordinationStore) -> None:
    assert sorted(store.create([a_partition("a", n=1), a_partition("b"), a_partition("a", n=2)])) == ["a", "b"]
    assert store.get(SOURCE, "a") == a_partition("a", n=1)


def test_empty_creation_does_nothing(store: CoordinationStore) -> None:
    assert store.create([]) == []
    assert store.transact() == []


def test_concurrent_creations_create_each_partition_once(store: CoordinationStore) -> None:
    many = [a_partition(f"p{n:03}") for n in range(200)]

    def create(worker: int) -> list[str]:
        return store.create(many if worker % 2 else many[::-1])

    with ThreadPoolExecutor(8) as pool:
        created = [key for keys_of_one in pool.map(create, range(8)) for key in keys_of_one]
    assert sorted(created) == keys(many)


# Browsing

OF_A_PERSON = [
    *AWKWARD_KEYS,
    "<script>alert('1')</script>",
    'say "hi"',
    "100%",
    "a%b",
    "a_b",
    "Orders/2026/01",
    "orders/2026/01",
    "orders/2026/02",
    "orders0",
    "\U0010ffff",
    "\U0010ffff\U0010ffff",
]


def page_of(store: CoordinationStore, wanted: Filter, **options: Any) -> BrowsePage:
    return store.browse(PageRequest(source_identifier=SOURCE, wanted=wanted, **options))


def browse(
    store: CoordinationStore,
    wanted: Filter | None = None,
    *,
    order: SortOrder = SortOrder.KEY,
    descending: bool = False,
    limit: int = 100,
    examine: int = 1000,
) -> list[Partition]:
    """Return what all pages have, one after the other."""
    found: list[Partition] = []
    place: BrowsePosition | None = None
    for _ in range(200):
        page = page_of(
            store, wanted or Filter(), order=order, descending=descending, after=place, limit=limit, examine=examine
        )
        assert len(page.partitions) <= limit
        found += page.partitions
        if page.next is None:
            return found
        place = page.next
    raise AssertionError("the pages do not end")


@pytest.fixture
def browsed_store(store: CoordinationStore) -> CoordinationStore:
    """A store with partitions wherever they can stand."""
    store.create([a_partition(key, age_seconds=60 - n) for n, key in enumerate(["held", "expired", "away"])])
    store.create([a_partition(key, age_seconds=30) for key in ("resting", "parked", "done", "failed")])
    held = {p.partition_key: p for p in store.acquire(acquisition(7, owner="host-1:dag"))}
    store.transact(
        update=[
            held["held"].renewed(NOW + timedelta(hours=1)),
            replace(held["expired"], owner="host-2:dag").renewed(NOW + timedelta(minutes=2)),
            held["away"].awaiting(NOW + timedelta(hours=2)),
            held["resting"].failed("no").resting(NOW + timedelta(minutes=5)),
            held["parked"].failed("no").resting(PARKED_UNTIL),
            held["done"].completed(NOW),
            held["failed"].failed("no").given_up(NOW),
        ]
    )
    store.create([a_partition("waiting"), a_partition("waiting", source="test|orders|PARTITION")])
    return store


@pytest.mark.parametrize(("limit", "examine"), [(3, 1000), (3, 2), (100, 1), (1, 5)])
def test_browse_shows_each_partition_once_in_key_order(store: CoordinationStore, limit: int, examine: int) -> None:
    store.create([a_partition(key, n=n) for n, key in enumerate(OF_A_PERSON)])
    store.create([a_partition("of another source", source="test|orders|PARTITION")])
    in_order = sorted(OF_A_PERSON)
    assert keys(browse(store, limit=limit, examine=examine)) == in_order
    assert keys(browse(store, limit=limit, examine=examine, descending=True)) == in_order[::-1]
    assert browse(store, Filter(search="no such key"), limit=limit, examine=examine) == []


@pytest.mark.parametrize(("limit", "examine"), [(2, 1000), (2, 1), (100, 4)])
def test_browse_shows_partitions_of_a_status_oldest_first(store: CoordinationStore, limit: int, examine: int) -> None:
    ages = {f"p{n:02}": n // 3 for n in range(14)}
    store.create([a_partition(key, age_seconds=age) for key, age in ages.items()])
    waiting = Filter(statuses=[PartitionStatus.UNASSIGNED])
    for descending in (False, True):
        found = browse(store, waiting, order=SortOrder.PRIORITY, descending=descending, limit=limit, examine=examine)
        assert sorted(keys(found)) == sorted(ages)
        assert [ages[p.partition_key] for p in found] == sorted(ages.values(), reverse=not descending)
        if store.kind != "dynamodb":
            assert keys(found) == sorted(ages, key=lambda key: (-ages[key], key), reverse=descending)
    few = replace(waiting, search="1")
    assert sorted(keys(browse(store, few, order=SortOrder.PRIORITY, limit=limit, examine=examine))) == [
        "p01", "p10", "p11", "p12", "p13"
    ]  # fmt: skip


@pytest.mark.parametrize("examine", [1000, 3])
def test_browse_applies_its_filter(browsed_store: CoordinationStore, examine: int) -> None:
    everything = ["away", "done", "expired", "failed", "held", "parked", "resting", "waiting"]
    soon, later = NOW + timedelta(minutes=2), NOW + timedelta(hours=1)
    assigned, closed, completed = PartitionStatus.ASSIGNED, PartitionStatus.CLOSED, PartitionStatus.COMPLETED
    for wanted, expected in [
        (Filter(), everything),
        (Filter(statuses=[assigned]), ["away", "expired", "held"]),
        (Filter(statuses=[PartitionStatus.UNASSIGNED, completed]), ["done", "failed", "waiting"]),
        (Filter(parked=True), ["parked"]),
        (Filter(failing=True), ["failed", "parked", "resting"]),
        (Filter(failing=True, statuses=[closed]), ["parked", "resting"]),
        (Filter(owner="host-"), ["away", "expired", "held"]),
        (Filter(owner="host-2"), ["expired"]),
        (Filter(owner="Host"), []),
        (Filter(owner="%"), []),
        (Filter(expired_by=soon), ["expired"]),
        (Filter(expired_by=soon - timedelta(microseconds=1)), []),
        (Filter(expired_by=later, search="e"), ["expired", "held"]),
        (Filter(expired_by=later, statuses=[closed]), []),
        (Filter(prefix="w"), ["waiting"]),
        (Filter(prefix="p", parked=True, failing=True, search="ark"), ["parked"]),
    ]:
        for limit in (1, 100):
            assert keys(browse(browsed_store, wanted, limit=limit, examine=examine)) == expected, wanted
        if len(wanted.statuses) == 1:
            by_age = browse(browsed_store, wanted, order=SortOrder.PRIORITY, limit=1, examine=examine)
            assert sorted(keys(by_age)) == expected, wanted
    by_lease = Filter(statuses=[assigned], expired_by=later)
    assert keys(browse(browsed_store, by_lease, order=SortOrder.PRIORITY, examine=examine)) == ["expired", "held"]


def test_browse_returns_whole_partitions(browsed_store: CoordinationStore) -> None:
    partitions = browse(browsed_store, limit=2)
    assert len(partitions) == 8
    for partition in partitions:
        assert partition == browsed_store.get(SOURCE, partition.partition_key)


def test_search_is_literal(store: CoordinationStore) -> None:
    store.create([a_partition(key) for key in OF_A_PERSON])
    for text in [
        "a",
        "A",
        "%",
        "_",
        "'",
        '"',
        "\\",
        "😀",
        "<script>",
        "é",
        "e\u0301",
        "ord",
        " ",
        "/",
        "\n",
        "\U0010ffff",
    ]:
        expected = [key for key in sorted(OF_A_PERSON) if text in key]
        assert expected
        assert keys(browse(store, Filter(search=text), examine=7)) == expected, text
        waiting = Filter(search=text, statuses=[PartitionStatus.UNASSIGNED])
        assert set(keys(browse(store, waiting, order=SortOrder.PRIORITY))) == set(expected), text


def test_prefix_is_literal(store: CoordinationStore) -> None:
    store.create([a_partition(key) for key in OF_A_PERSON])
    for prefix in ["a", "A", "a ", "%", "orders/", "orders/2026/0", "😀", "<script>", " ", "\U0010ffff", "nothing"]:
        expected = [key for key in sorted(OF_A_PERSON) if key.startswith(prefix)]
        for descending in (False, True):
            found = keys(browse(store, Filter(prefix=prefix), limit=2, descending=descending))
            assert found == (expected[::-1] if descending else expected), prefix
        waiting = Filter(prefix=prefix, statuses=[PartitionStatus.UNASSIGNED])
        assert keys(browse(store, waiting, limit=2, examine=2)) == expected, prefix
        assert set(keys(browse(store, waiting, order=SortOrder.PRIORITY))) == set(expected), prefix


def test_browse_continues_after_a_deleted_partition(store: CoordinationStore) -> None:
    store.create([a_partition(f"p{n}", age_seconds=9 - n) for n in range(9)])
    waiting = Filter(statuses=[PartitionStatus.UNASSIGNED])
    for order, rest in ((SortOrder.KEY, ["p3", "p4"]), (SortOrder.PRIORITY, ["p4", "p5"])):
        first = page_of(store, waiting, order=order, limit=3)
        assert first.next is not None
        store.delete(first.partitions[-1])
        assert keys(page_of(store, waiting, order=order, after=first.next, limit=2).partitions) == rest


def test_browse_without_matches_ends_with_a_position(store: CoordinationStore) -> None:
    store.create([a_partition(f"p{n:02}") for n in range(12)])
    page = page_of(store, Filter(search="11"), examine=5)
    assert (page.partitions, page.next) == ([], BrowsePosition("", "p04"))
    page = page_of(store, Filter(search="11"), examine=7, after=page.next)
    assert keys(page.partitions) == ["p11"]


def test_browse_that_no_index_serves_is_refused(store: CoordinationStore) -> None:
    statuses = [PartitionStatus.CLOSED, PartitionStatus.ASSIGNED]
    with pytest.raises(ConfigurationError, match="'priority' needs exactly one status; got ASSIGNED, CLOSED"):
        page_of(store, Filter(statuses=statuses), order=SortOrder.PRIORITY)
    with pytest.raises(ConfigurationError, match="the filter has no status"):
        page_of(store, Filter(statuses=[]))
    for order, prefix, place in [
        (SortOrder.KEY, "", BrowsePosition("2026-03-01T12:00:00.000000Z", "a")),
        (SortOrder.KEY, "b", BrowsePosition("", "a")),
        (SortOrder.PRIORITY, "", BrowsePosition("", "a")),
        (SortOrder.PRIORITY, "", BrowsePosition("2026-03-01T12:00:00.000000Z", "")),
    ]:
        wanted = Filter(prefix=prefix, statuses=[PartitionStatus.CLOSED])
        with pytest.raises(ConfigurationError, match="start with the first page"):
            page_of(store, wanted, order=order, after=place)
