"""How far the searches go: a short form in every run, and with `--deep` the one that takes long by nature.

A test that has both forms is marked `deep`, as is each property of hypothesis, so that `make test-deep` finds them.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

FACTOR = 20
"""How many times as many examples of a property are tried with `--deep`."""
SEED = int(os.environ.get("STRIKE_SEED", datetime.now(UTC).toordinal()))
"""Decides what short forms take of their searches: the day's date; `STRIKE_SEED` repeats a day."""
DEEP_ALONE = Path(__file__).resolve().parents[1] / "deep"
"""The folder of the searches that have no short form."""

_deep = False
Form = TypeVar("Form")


def at_depth(*, short: Form, deep: Form) -> Form:
    """Return what a run goes by: the short form, or the deep one with `--deep`."""
    return deep if _deep else short


def examples(number: int) -> int:
    """Return how many examples of a property this run tries.

    :param number: without `--deep`.
    """
    return at_depth(short=number, deep=FACTOR * number)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--deep`."""
    text = "search as far as takes long by nature, instead of the short form of each search"
    parser.addoption("--deep", action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Take over what was asked for, before the first test is imported."""
    global _deep
    _deep = bool(config.getoption("deep"))
    # No time limits: how long an example takes depends on what else the machine has to do.
    settings.register_profile(
        "coordination", max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("coordination")


def pytest_report_header() -> str:
    """Show the seed, which repeats a run."""
    return f"searches: STRIKE_SEED={SEED}"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out what has no short form, unless `--deep` asks for it."""
    return True if collection_path == DEEP_ALONE and not _deep else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the properties, whose examples are more with `--deep`."""
    if _deep and is_hypothesis_test(getattr(item, "obj", None)):
        item.add_marker("deep")
