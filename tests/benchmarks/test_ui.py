"""The benchmark of the pages is run by hand; these tests check how its results are printed."""

from __future__ import annotations

from benchmarks.ui import Measurements, table


def test_results_contain_median_and_maximum() -> None:
    figures = Measurements(
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

    results = figures.as_json()

    assert results["first_paint_ms"] == {"table": {"median": 400, "longest": 900, "count": 3}}
    assert results["scrolling"] == {
        "frame_ms": 17,
        "longest_frame_ms": 33,
        "elements": 1500,
        "rows": 10_000,
    }
    assert "| Airflow's own API, 50 tabs open | 13 ms | 14 ms | 2 |" in table(figures)
