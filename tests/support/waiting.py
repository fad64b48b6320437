"""Waiting in tests for what other threads and processes do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_SECONDS = 400.0
"""How long a test waits for what must come: a loaded machine may need minutes for what otherwise takes a second."""


def until(find: Callable[[], T], state: Callable[[], object] = lambda: "") -> T:
    """Return what a function returns, once that is true.

    :param state: describes what there is instead, such as the log of a process.
    :raises AssertionError: if it is not true within `PATIENCE_SECONDS`.
    """
    begun, pause = time.monotonic(), threading.Event()
    deadline = begun + PATIENCE_SECONDS
    while not (found := find()):
        if (now := time.monotonic()) > deadline:
            raise AssertionError(f"it did not happen within {PATIENCE_SECONDS:g} s: {state()}")
        pause.wait(min(max(0.02, 4 * (now - begun)), 0.5))  # what is waited for needs the processor more
        begun = time.monotonic()
    return found
