"""The benchmark of reading costs runs and prints its results; it asserts its counts itself."""

from __future__ import annotations

import pytest

from tests.benchmarks.test_delivery import results_of


@pytest.mark.only_deep
@pytest.mark.integration
def test_last_line_is_json() -> None:
    figures = results_of("benchmarks.reading_cost")

    assert set(figures) == {"200 B", "200 B, aggregated", "1024 B", "1024 B, aggregated"}
    assert all(found["times loop"] > 0 and found["times rows"] > 0 for found in figures.values())
