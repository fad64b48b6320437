"""How fast the pages are is measured by hand; here is how the figures are told."""

from __future__ import annotations

from benchmarks.ui import Figures, table


def test_figures_are_told_by_median_and_worst() -> None:
    figures = Figures(
        paint={"table": [400.2, 300.0, 900.0]},
        load={"table": [1800.0]},
        cold={"table": 2000.4},
        refresh=[20.0],
        frame=33.3,
        usual_frame=16.6,
        elements=1500,
        rows=10_000,
        airflow={"no tab": [10.0], "50 tabs": [12.0, 14.0]},
    )

    told = figures.as_json()

    assert told["first_paint_ms"] == {"table": {"median": 400, "longest": 900, "count": 3}}
    assert told["scrolling"] == {
        "frame_ms": 17,
        "longest_frame_ms": 33,
        "elements": 1500,
        "rows": 10_000,
    }
    assert "| Airflow's own API, 50 tabs open | 13 ms | 14 ms | 2 |" in table(figures)
