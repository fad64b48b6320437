"""Which objects share a partition: globs over their names, and packing into partitions of about equal work."""

from __future__ import annotations

import hashlib
import heapq
import re
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.s3.objects import ListedObject


@dataclass(frozen=True)
class Globs:
    """A set of globs, any of which may match.

    :param patterns: as `glob_regex` accepts them.
    :raises ConfigurationError: if one is not a valid glob.
    """

    patterns: tuple[str, ...]

    def __post_init__(self) -> None:
        compiled = re.compile("|".join(map(glob_regex, self.patterns)) if self.patterns else r"(?!)", re.DOTALL)
        object.__setattr__(self, "_compiled", compiled)

    def match(self, name: str) -> bool:
        """Return whether one of the globs matches the whole name; without globs, none does.

        :param name: the object's name below the scanned path.
        """
        compiled: re.Pattern[str] = self._compiled  # type: ignore[attr-defined]
        return compiled.fullmatch(name) is not None


def glob_regex(pattern: str) -> str:
    """Return a glob as a regular expression.

    `*` and `?` stay within a folder, `**` matches any number of folders, `[abc]`, `[a-z]` and `[!abc]` match one
    character, `{a,b}` matches either. A glob without `/` applies to the last part of the name, in any folder, as in
    `.gitignore`.

    :raises ConfigurationError: if it is not a valid glob; the caller adds the field.
    """
    if not pattern:
        raise ConfigurationError("an empty glob matches nothing; remove it")
    anywhere = "" if "/" in pattern else "(?:.*/)?"
    return f"(?:{anywhere}{_translated(pattern.removeprefix('/'), pattern)})"


def _translated(rest: str, glob: str) -> str:
    regex, depth, at = "", 0, 0
    while at < len(rest):
        character = rest[at]
        at += 1
        if rest.startswith("**/", at - 1):
            regex, at = regex + "(?:.*/)?", at + 2
        elif rest.startswith("**", at - 1):
            regex, at = regex + ".*", at + 1
        elif character == "*":
            regex += "[^/]*"
        elif character == "?":
            regex += "[^/]"
        elif character == "[":
            class_, at = _character_class(rest, at, glob)
            regex += class_
        elif character == "{":
            regex, depth = regex + "(?:", depth + 1
        elif character == "}" and depth:
            regex, depth = regex + ")", depth - 1
        elif character == "," and depth:
            regex += "|"
        else:
            regex += re.escape(character)
    if depth:
        raise ConfigurationError(f"glob {glob!r} has a '{{' without its '}}'; close it, or write '[{{]' for the brace")
    return regex


def _character_class(rest: str, at: int, glob: str) -> tuple[str, int]:
    """Return the regular expression of a character class, given the index after its `[`, and where the class ends."""
    end = rest.find("]", at + (2 if rest.startswith("!", at) else 1))
    if end < 0:
        raise ConfigurationError(f"glob {glob!r} has a '[' without its ']'; close it, or write '[[]' for the bracket")
    content = rest[at:end]
    negated = content.startswith("!")
    body = content.removeprefix("!").replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^")
    body = re.sub(r"([&~|])", r"\\\1", body)
    regex = f"(?!/)[{'^' if negated else ''}{body}]"
    try:
        re.compile(regex)
    except re.error as error:
        raise ConfigurationError(f"glob {glob!r}: the range [{content}] is invalid: {error}; reverse it") from None
    return regex, end + 1


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
