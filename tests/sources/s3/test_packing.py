"""Objects are packed into even partitions: each once, and no partition beyond its limits."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_coordination.coordination.partition import MAX_KEY_BYTES
from airflow_provider_coordination.sources.s3.objects import ListedObject
from airflow_provider_coordination.sources.s3.selection import (
    MAX_ITEMS_BYTES,
    OPENING_BYTES,
    PackingLimits,
    item_bytes,
    pack,
    partition_key,
)
from tests.sources.s3.scans import MODIFIED, found

MEGABYTE = 1024 * 1024
LIMITS = PackingLimits(max_objects=100, max_bytes=100 * MEGABYTE, room=1000)


def sized(*sizes: int) -> list[ListedObject]:
    return [found(f"{n:05}", size=size) for n, size in enumerate(sizes)]


def work(packed: list[ListedObject]) -> int:
    return sum(each.size + OPENING_BYTES for each in packed)


@given(
    sizes=st.lists(st.integers(0, 150) | st.integers(0, 3), max_size=300),
    max_objects=st.integers(1, 120),
    room=st.integers(1, 120),
    max_bytes=st.integers(1, 120),
)
def test_each_object_is_in_one_pack_within_limits(
    sizes: list[int], max_objects: int, room: int, max_bytes: int
) -> None:
    objects = sized(*(size * MEGABYTE for size in sizes))
    limits = PackingLimits(max_objects=max_objects, max_bytes=max_bytes * MEGABYTE, room=room)
    packs = pack(objects, limits)
    assert sorted((each for packed in packs for each in packed), key=lambda each: each.uri) == objects
    for packed in packs:
        assert 1 <= len(packed) <= min(max_objects, room)
        assert len(packed) == 1 or sum(each.size for each in packed) <= limits.max_bytes
        assert packed == sorted(packed, key=lambda each: each.uri)
    assert packs == sorted(packs, key=lambda packed: packed[0].uri)


@given(sizes=st.lists(st.integers(0, 10 * MEGABYTE), min_size=1, max_size=300))
def test_packs_are_even(sizes: list[int]) -> None:
    """Of objects far below the limits, no pack has more work than another by more than the largest object."""
    packs = pack(sized(*sizes), PackingLimits(max_objects=150, max_bytes=10_000 * MEGABYTE, room=1000))
    works = [work(packed) for packed in packs]
    assert len(packs) <= len(sizes) // 150 + 1
    if max(len(packed) for packed in packs) < 150:
        assert max(works) - min(works) <= max(sizes) + OPENING_BYTES


def test_small_objects_share_a_partition_without_the_large_one() -> None:
    packs = pack(sized(10, 300 * MEGABYTE, 20, 30), LIMITS)
    assert [[each.size for each in packed] for packed in packs] == [[10, 20, 30], [300 * MEGABYTE]]


def test_objects_are_spread_evenly_over_the_necessary_packs() -> None:
    assert [len(packed) for packed in pack(sized(*[10] * 240), LIMITS)] == [80, 80, 80]


def test_partition_claims_stay_within_room() -> None:
    packs = pack(sized(*[10] * 240), PackingLimits(max_objects=1000, max_bytes=MEGABYTE, room=98))
    assert max(len(packed) for packed in packs) <= 98


@pytest.mark.parametrize("character", ["a", "é", "😀", '"', "\x01", "\\"])
def test_partition_items_fit_into_progress_with_any_names(character: str) -> None:
    objects = [found(f"{character * 60}{n:05}") for n in range(2000)]
    packs = pack(objects, PackingLimits(max_objects=2000, max_bytes=1 << 40, room=2000))
    assert sum(map(len, packs)) == 2000
    for packed in packs:
        items = json.dumps([each.to_item() for each in packed], separators=(",", ":"))
        assert len(items) <= MAX_ITEMS_BYTES
    each = objects[0]
    assert len(json.dumps(each.to_item(), separators=(",", ":"))) <= item_bytes(each)


def test_items_fit_into_progress_despite_even_packing() -> None:
    objects = [found("large", size=500 * MEGABYTE), *(found(f"{'x' * 900}{n:05}") for n in range(100))]
    packs = pack(objects, PackingLimits(max_objects=1000, max_bytes=1 << 40, room=1000))
    assert max(sum(map(item_bytes, packed)) for packed in packs) <= MAX_ITEMS_BYTES


def test_largest_object_stays_within_its_estimate() -> None:
    largest = ListedObject("s3://bucket/x", 10**15, '"0123"', MODIFIED)
    assert len(json.dumps(largest.to_item(), separators=(",", ":"))) + 1 <= item_bytes(largest)


def test_no_objects_make_no_pack() -> None:
    assert pack([], LIMITS) == []


def test_partition_key_names_first_object_and_content() -> None:
    assert partition_key([found("a.csv")]).startswith("s3://bucket/in/a.csv@")
    assert partition_key([found("a.csv"), found("b.csv")]).startswith("s3://bucket/in/a.csv+1@")
    assert partition_key([found("a.csv")]) == partition_key([found("a.csv")])
    assert partition_key([found("a.csv")]) != partition_key([found("a.csv", version='"2"')])


def test_same_content_uploaded_again_is_another_partition() -> None:
    again = replace(found("a.csv"), modified=MODIFIED + timedelta(seconds=1))
    assert again.name == found("a.csv").name and partition_key([again]) != partition_key([found("a.csv")])


def test_partition_key_is_short_for_any_object_names() -> None:
    long = partition_key([found("é" * 1000 + "/the end"), found("b")])
    assert long.startswith("s3://bucket/in/é") and "/the end+1@" in long
    assert len(long.encode()) <= MAX_KEY_BYTES // 2
