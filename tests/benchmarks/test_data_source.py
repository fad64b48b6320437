"""The benchmark of the data source runs and ends with its figures; times are not asserted, counts are by itself."""

from __future__ import annotations

import pytest

from tests.benchmarks.test_delivery import figures_of


@pytest.mark.integration
def test_it_ends_with_a_line_of_figures() -> None:
    figures = figures_of("benchmarks.data_source")

    assert set(figures) == {"200 B", "1024 B", "idle seconds"}
    assert all(figures[size]["times less processor"] > 0 for size in ("200 B", "1024 B"))
