"""Packing objects of very different sizes into partitions that take about as long as each other."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_provider_coordination.sources.s3.objects import Found

OPENING_BYTES = 1024 * 1024
"""What opening an object costs, in bytes that could be read meanwhile."""
MAX_ITEMS_BYTES = 48 * 1024
"""Most bytes that the items of a partition take in its progress, which also has to hold what is landed."""
ITEM_BYTES = 110
"""What an item takes beside its URI and its version: names of fields, size, instant."""
KEY_NAME_CHARACTERS = 96


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one partition may hold.

    :param max_objects: most objects.
    :param max_bytes: most bytes, as stored; an object that has more is alone.
    :param room: most names that it may claim.
    """

    max_objects: int
    max_bytes: int
    room: int

    @property
    def objects(self) -> int:
        """Most objects, whatever the reason."""
        return min(self.max_objects, self.room)


def pack(found: Sequence[Found], limits: Limits) -> list[list[Found]]:
    """Pack objects: each into exactly one pack, all packs about equally much work.

    The largest object first, each to the pack with the least work so far that has room: no pack is further from
    another than by one object, but where a limit says so.

    :returns: the packs; the objects of each, and the packs by their first one, in the order in which they were given.
    """
    order = {id(each): place for place, each in enumerate(found)}
    in_progress = {id(each): item_bytes(each) for each in found}
    packs = [_Pack() for _ in range(_least(found, limits, sum(in_progress.values())))]
    heap = [(0, number) for number in range(len(packs))]
    for each in sorted(found, key=lambda each: each.size, reverse=True):
        passed, needs = [], in_progress[id(each)]
        while heap and not packs[heap[0][1]].has_room_for(each, needs, limits):
            passed.append(heapq.heappop(heap))
        if heap:
            _, number = heapq.heappop(heap)
        else:
            number = len(packs)
            packs.append(_Pack())
        packs[number].add(each, needs)
        for entry in (*passed, (packs[number].work, number)):
            if len(packs[entry[1]].found) < limits.objects:  # one that is full is not looked at again
                heapq.heappush(heap, entry)
    for each_pack in packs:
        each_pack.found.sort(key=lambda each: order[id(each)])
    return sorted((p.found for p in packs if p.found), key=lambda of_pack: order[id(of_pack[0])])


class _Pack:
    def __init__(self) -> None:
        self.found: list[Found] = []
        self.bytes = 0
        self.item_bytes = 0

    @property
    def work(self) -> int:
        return self.bytes + OPENING_BYTES * len(self.found)

    def has_room_for(self, found: Found, needs: int, limits: Limits) -> bool:
        return not self.found or (
            len(self.found) < limits.objects
            and self.bytes + found.size <= limits.max_bytes
            and self.item_bytes + needs <= MAX_ITEMS_BYTES
        )

    def add(self, found: Found, needs: int) -> None:
        self.found.append(found)
        self.bytes += found.size
        self.item_bytes += needs


def _least(found: Sequence[Found], limits: Limits, in_progress: int) -> int:
    """Return how many packs there are at least."""
    large = sum(each.size >= limits.max_bytes for each in found)
    small = [each for each in found if each.size < limits.max_bytes]
    shares = (
        (sum(each.size for each in small), limits.max_bytes),
        (len(small), limits.objects),
        (in_progress, MAX_ITEMS_BYTES),
    )
    return large + max(-(-total // most) for total, most in shares)


def item_bytes(found: Found) -> int:
    """Return how many bytes an object takes in a partition's progress at most."""
    return ITEM_BYTES + _json_bytes(found.uri) + _json_bytes(found.version)


def _json_bytes(text: str) -> int:
    if text.isascii() and text.isprintable():
        return len(text) + text.count('"') + text.count("\\")
    return 12 * len(text)


def partition_key(found: Sequence[Found]) -> str:
    """Return the key of a pack's partition: readable, and the same for the same objects in the same versions.

    It is the first object's URI, how many there are beside it, and a digest of all names.
    """
    digest = hashlib.sha256("\n".join(each.name for each in found).encode(errors="surrogatepass")).hexdigest()[:16]
    uri = found[0].uri.replace("\0", "")
    if len(uri) > KEY_NAME_CHARACTERS:  # its end says more than its middle, and keys become names of folders
        half = KEY_NAME_CHARACTERS // 2
        uri = f"{uri[:half]}...{uri[-half:]}"
    others = f"+{len(found) - 1}" if len(found) > 1 else ""
    return f"{uri}{others}@{digest}"
