"""Sequence numbers: 56 digits, growing, and without a meaning, as those of AWS.

The high digits order the generations of shards, so that a child's numbers come after its parent's; numbers of
sibling shards interleave. Low bits hold a scrambled serial number of the shard, by which the server, and nobody
else, reveals the number of another shard.
"""

from __future__ import annotations

_VERSION = 2
_SERIAL_SHIFT, _SECONDS_SHIFT, _INDEX_SHIFT, _TICK_SHIFT, _TOP_SHIFT = 4, 36, 80, 144, 184
_SERIAL_MASK = (1 << 32) - 1
_SECONDS_MASK = (1 << 36) - 1
_LAST_INDEX = (1 << 63) - 1


def scrambled(count: int) -> int:
    """Return the serial number of the nth shard: 32 bits, different for each."""
    return (count * 0x9E3779B1) & _SERIAL_MASK


def first_number(tick: int, serial: int) -> int:
    """Return where a shard's numbers begin.

    :param tick: grows with each generation of shards.
    :param serial: the shard's, from `scrambled`.
    """
    return (2 << _TOP_SHIFT) | (tick << _TICK_SHIFT) | (serial << _SERIAL_SHIFT) | _VERSION


def record_number(first: int, index: int, seconds: int) -> int:
    """Return the number of a record.

    :param first: where the shard's numbers begin.
    :param index: grows with each record of the shard.
    :param seconds: when it arrived.
    """
    return first | (index << _INDEX_SHIFT) | ((seconds & _SECONDS_MASK) << _SECONDS_SHIFT)


def last_number(first: int, seconds: int) -> int:
    """Return where the numbers of a shard end that is closed at that time."""
    return record_number(first, _LAST_INDEX, seconds)


def highest_number(first: int) -> int:
    """Return the highest number that could ever be one of a shard."""
    return record_number(first, _LAST_INDEX, _SECONDS_MASK)


def serial_of(number: int) -> int | None:
    """Return the serial of the shard whose number it is; None if no server made it."""
    return (number >> _SERIAL_SHIFT) & _SERIAL_MASK if number & 0xF == _VERSION else None
