"""Packing objects of very different sizes into partitions that take about equally long to read."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_provider_coordination.sources.s3.objects import ListedObject

OPENING_BYTES = 1024 * 1024
"""The cost of opening an object, as the number of bytes that could be read in that time."""
MAX_ITEMS_BYTES = 48 * 1024
"""The maximum number of bytes of a partition's items in its progress, which must also hold the landed batches."""
ITEM_BYTES = 110
"""The bytes of an item in addition to its URI and version: names of fields, size, instant."""
KEY_NAME_CHARACTERS = 96


@dataclass(frozen=True, kw_only=True)
class PackingLimits:
    """The limits of one partition.

    :param max_objects: the maximum number of objects.
    :param max_bytes: the maximum number of bytes, as stored; a larger object is alone.
    :param room: the maximum number of names that it may claim.
    """

    max_objects: int
    max_bytes: int
    room: int

    @property
    def objects(self) -> int:
        """The maximum number of objects by both limits."""
        return min(self.max_objects, self.room)


def pack(objects: Sequence[ListedObject], limits: PackingLimits) -> list[list[ListedObject]]:
    """Pack objects into packs of about equal work; each object is in exactly one pack.

    The objects are packed by size, the largest first, each into the pack with the least work that has room. So two
    packs differ by at most one object, unless a limit prevents that.

    :returns: the packs. Their objects, and the packs by their first object, are in the given order.
    """
    needs = [item_bytes(each) for each in objects]
    packs = [_Pack() for _ in range(_minimum_packs(objects, limits, sum(needs)))]
    heap = [(0, number) for number in range(len(packs))]
    max_objects = limits.objects
    for place in sorted(range(len(objects)), key=lambda place: objects[place].size, reverse=True):
        passed, size = [], objects[place].size
        while heap and not packs[heap[0][1]].has_room_for(size, needs[place], limits.max_bytes):
            passed.append(heapq.heappop(heap))
        if heap:
            _, number = heapq.heappop(heap)
        else:
            number = len(packs)
            packs.append(_Pack())
        packs[number].add(place, size, needs[place])
        if len(packs[number].places) < max_objects:  # a full pack is not considered again
            passed.append((packs[number].work, number))
        for entry in passed:
            heapq.heappush(heap, entry)
    packed = sorted(sorted(each.places) for each in packs if each.places)
    return [[objects[place] for place in places] for places in packed]


class _Pack:
    def __init__(self) -> None:
        self.places: list[int] = []
        self.bytes = 0
        self.item_bytes = 0

    @property
    def work(self) -> int:
        return self.bytes + OPENING_BYTES * len(self.places)

    def has_room_for(self, size: int, item_bytes: int, max_bytes: int) -> bool:
        return not self.places or (self.bytes + size <= max_bytes and self.item_bytes + item_bytes <= MAX_ITEMS_BYTES)

    def add(self, place: int, size: int, item_bytes: int) -> None:
        self.places.append(place)
        self.bytes += size
        self.item_bytes += item_bytes


def _minimum_packs(objects: Sequence[ListedObject], limits: PackingLimits, in_progress: int) -> int:
    """Return the minimum number of packs."""
    large = sum(each.size >= limits.max_bytes for each in objects)
    small = [each for each in objects if each.size < limits.max_bytes]
    shares = (
        (sum(each.size for each in small), limits.max_bytes),
        (len(small), limits.objects),
        (in_progress, MAX_ITEMS_BYTES),
    )
    return large + max(-(-total // maximum) for total, maximum in shares)


def item_bytes(listed: ListedObject) -> int:
    """Return the maximum number of bytes that an object takes in a partition's progress."""
    return ITEM_BYTES + _json_bytes(listed.uri) + _json_bytes(listed.version)


def _json_bytes(text: str) -> int:
    if text.isascii() and text.isprintable():
        return len(text) + text.count('"') + text.count("\\")
    return 12 * len(text)


def partition_key(objects: Sequence[ListedObject]) -> str:
    """Return the key of a pack's partition: readable, and the same for the same uploads of the same objects.

    It has the first object's URI, the number of other objects, and a digest of all names and times. The times matter:
    an object that was deleted on success and is uploaded again with the same content must be delivered again, and a
    sink accepts each batch of a partition only once.
    """
    uploads = "\n".join(f"{each.name} {each.modified.timestamp()}" for each in objects)
    digest = hashlib.sha256(uploads.encode(errors="surrogatepass")).hexdigest()[:16]
    uri = objects[0].uri.replace("\0", "")
    if len(uri) > KEY_NAME_CHARACTERS:  # its end is more useful than its middle, and keys become names of folders
        half = KEY_NAME_CHARACTERS // 2
        uri = f"{uri[:half]}...{uri[-half:]}"
    others = f"+{len(objects) - 1}" if len(objects) > 1 else ""
    return f"{uri}{others}@{digest}"
