"""The memory of a slot: how much its partitions hold at the same time of what they read."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

ROW_GROUP_BYTES = 16 * 2**20
"""How much of a partition is held until it is worth a row group."""
LEAST_ROW_GROUP_BYTES = 256 * 2**10
"""How much it is where many partitions share the memory of a slot."""


@dataclass
class _Waiting:
    """Somebody who waits for memory."""

    size: int
    granted: threading.Event = field(default_factory=threading.Event)


class SlotMemory:
    """A number of bytes that threads share. Who asks first is served first.

    Nobody may wait for more while it holds what only it can let go: it lets that go before.

    :param limit: how many bytes there are. Somebody who asks for more gets it once nobody holds anything.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._waiting: deque[_Waiting] = deque()
        self._held = 0
        self.largest = 0
        """How many bytes were held at most."""

    def hold_now(self, size: int) -> bool:
        """Hold some bytes if they are there, and nobody waits; return whether they were."""
        with self._lock:
            return not self._waiting and self._hold(size)

    def hold(self, size: int, timeout: float | None = None) -> bool:
        """Hold some bytes, once they are there.

        :param size: how many.
        :param timeout: how many seconds to wait at most; None for as long as it takes.
        :returns: whether they came in time.
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
        """Hold some bytes no more.

        :param for_those: these are held in their place, which are in memory already.
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
    """Memory that somebody holds before it knows what it needs.

    :param memory: of the slot.
    :param size: how much.
    """

    def __init__(self, memory: SlotMemory, size: int) -> None:
        self._memory = memory
        self._size = size
        self._is_held = False

    def hold_now(self) -> bool:
        """Hold it if it is there; see `SlotMemory.hold_now`."""
        self._is_held = self._memory.hold_now(self._size)
        return self._is_held

    def hold_within(self, timeout: float | None) -> bool:
        """Hold it, once it is there; see `SlotMemory.hold`."""
        self._is_held = self._memory.hold(self._size, timeout)
        return self._is_held

    def let_go(self) -> None:
        """Hold it no more; nothing happens if it is not held."""
        self._memory.let_go(self.hand_over())

    def hand_over(self) -> int:
        """Leave it to somebody else, who lets go of it; return how many bytes that is."""
        held, self._is_held = self._size if self._is_held else 0, False
        return held
