"""The memory of a slot: how much its partitions may hold at the same time of what they read."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

ROW_GROUP_BYTES = 16 * 2**20
"""How many bytes of a partition are collected for a row group."""
MIN_ROW_GROUP_BYTES = 256 * 2**10
"""The minimum, if many partitions share the memory of a slot."""


@dataclass
class _Waiting:
    """A thread that waits for memory."""

    size: int
    granted: threading.Event = field(default_factory=threading.Event)


class SlotMemory:
    """A number of bytes that threads share. The thread that requests first is served first.

    A thread must not wait for more while it holds bytes that only it can release: it must release them first.

    :param limit: the number of bytes. A request for more is granted once no thread holds anything.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._waiting: deque[_Waiting] = deque()
        self._held = 0
        self.largest = 0
        """The largest number of bytes that were held."""

    def hold_now(self, size: int) -> bool:
        """Hold some bytes if they are free and no thread waits; return whether they are held."""
        with self._lock:
            return not self._waiting and self._hold(size)

    def hold(self, size: int, timeout: float | None = None) -> bool:
        """Hold some bytes, once they are free.

        :param size: the number of bytes.
        :param timeout: the maximum number of seconds to wait; None for no limit.
        :returns: whether they were free in time.
        """
        with self._lock:
            if not self._waiting and self._hold(size):
                return True
            mine = _Waiting(size)
            self._waiting.append(mine)
        mine.granted.wait(timeout)
        with self._lock:
            if mine.granted.is_set():
                return True
            self._waiting.remove(mine)
            self._grant()
            return False

    def let_go(self, size: int, *, for_those: int = 0) -> None:
        """Release some bytes.

        :param for_those: the number of bytes to hold instead, which are in memory already.
        """
        with self._lock:
            self._held += for_those - size
            self.largest = max(self.largest, self._held)
            self._grant()

    def _grant(self) -> None:
        while self._waiting and self._hold(self._waiting[0].size):
            self._waiting.popleft().granted.set()

    def _hold(self, size: int) -> bool:
        if self._held and self._held + size > self._limit:
            return False
        self._held += size
        self.largest = max(self.largest, self._held)
        return True


class Share:
    """Memory that a reader holds before it knows how much it needs.

    :param memory: the memory of the slot.
    :param size: the number of bytes.
    """

    def __init__(self, memory: SlotMemory, size: int) -> None:
        self._memory = memory
        self._size = size
        self._is_held = False

    def hold_now(self) -> bool:
        """Hold the share if it is free; see `SlotMemory.hold_now`."""
        self._is_held = self._memory.hold_now(self._size)
        return self._is_held

    def hold_within(self, timeout: float | None) -> bool:
        """Hold the share, once it is free; see `SlotMemory.hold`."""
        self._is_held = self._memory.hold(self._size, timeout)
        return self._is_held

    def let_go(self) -> None:
        """Release the share; nothing happens if it is not held."""
        self._memory.let_go(self.hand_over())

    def hand_over(self) -> int:
        """Pass the share to another holder, which releases it; return its number of bytes."""
        held, self._is_held = self._size if self._is_held else 0, False
        return held
