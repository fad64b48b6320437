"""The benchmark of what reading costs runs and ends with its figures; times are not asserted, counts are by itself."""

from __future__ import annotations

import pytest

from tests.benchmarks.test_delivery import figures_of


@pytest.mark.integration
def test_it_ends_with_a_line_of_figures() -> None:
    figures = figures_of("benchmarks.reading_cost")

    assert set(figures) == {"200 B", "200 B, aggregated", "1024 B", "1024 B, aggregated"}
    assert all(found["times loop"] > 0 and found["times rows"] > 0 for found in figures.values())
