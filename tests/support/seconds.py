"""Waiting for a server whose times are whole seconds."""

from __future__ import annotations

import time


def wait_for_another_second() -> None:
    """Wait until the clock shows another second, so that what follows has another time."""
    before = int(time.time())
    while int(time.time()) == before:
        time.sleep(0.02)
