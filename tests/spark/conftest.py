from __future__ import annotations

import logging
import signal
from collections.abc import Iterator

import pytest


@pytest.fixture
def as_in_a_process_of_its_own() -> Iterator[None]:
    """Take back what the application sets for a whole process: where logs go, and what signals do."""
    root, numbers = logging.getLogger(), (signal.SIGTERM, signal.SIGINT)
    handlers, level = root.handlers[:], root.level
    actions = [signal.getsignal(number) for number in numbers]
    yield
    root.handlers[:], root.level = handlers, level
    for number, action in zip(numbers, actions, strict=True):
        signal.signal(number, action)
