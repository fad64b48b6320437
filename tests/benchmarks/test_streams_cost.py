"""The benchmark of reading changes runs and prints its results; it asserts its counts itself."""

from __future__ import annotations

import pytest

from tests.benchmarks.test_delivery import results_of


@pytest.mark.only_deep
@pytest.mark.integration
def test_last_line_is_json() -> None:
    figures = results_of("benchmarks.streams_cost")

    assert set(figures) == {"flights", "1 KiB"}
    assert all(found["times loop"] > 0 for found in figures.values())
