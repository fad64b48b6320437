"""The seed of a test run: every random choice of a test follows from it.

A run takes the date, so that each day tries other cases, and prints its seed in pytest's header. `TEST_SEED` repeats a
run. The variable is set for all processes of a run, so a run over midnight keeps its seed.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeVar

VARIABLE = "TEST_SEED"
SEED = int(os.environ.setdefault(VARIABLE, f"{datetime.now(UTC):%Y%m%d}"))
"""The seed of this run."""

Case = TypeVar("Case")


def seeded(*names: object) -> random.Random:
    """Return a generator of random numbers that follows from the seed of the run.

    :param names: what the numbers are for, so that two tests do not choose alike.
    """
    return random.Random(f"{SEED} {names}")


def share_of(cases: Sequence[Case], share: float, *names: object) -> list[Case]:
    """Return a share of the cases in their order, others with each seed.

    :param share: of one, rounded up to whole cases.
    :param names: see `seeded`.
    """
    return some_of(cases, math.ceil(share * len(cases)), *names)


def some_of(cases: Sequence[Case], number: int, *names: object) -> list[Case]:
    """Return some of the cases in their order, others with each seed.

    :param number: how many at most.
    :param names: see `seeded`.
    """
    chosen = seeded(*names).sample(range(len(cases)), min(number, len(cases)))
    return [cases[index] for index in sorted(chosen)]


def pytest_report_header() -> str:
    """Print the seed."""
    return f"seed: {SEED} ({VARIABLE}={SEED} repeats this run)"
