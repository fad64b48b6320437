"""The benchmark of the pages is run by hand; these tests check how its results are counted and printed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.ui import Measurements, Resource, Transfer, compared_table, main, ratios, refreshes, table

SOURCES = "http://airflow/coordination/connections/coordination_default/sources"
TOGETHER = "http://airflow/coordination/together?path=connections%2Fcoordination_default%2Fsources"

FIGURES = Measurements(
    paint={"table": [400.2, 300.0, 900.0]},
    load={"table": [1800.0]},
    cold={"table": [2000.4]},
    files=Transfer(1, 190_000, 600_000),
    responses=Transfer(3, 5_000, 20_000),
    requests={"overview": 32.04},
    refresh={"overview": [20.0]},
    frame=33.3,
    usual_frame=16.6,
    elements=1500,
    rows=10_000,
    airflow={"no tab": [10.0], "50 tabs": [12.0, 14.0]},
)


def sent(url: str) -> Resource:
    return Resource(url=url, began=5.0, took=7.0, wire=100, raw=300)


def test_results_contain_median_and_maximum() -> None:
    results = FIGURES.as_json()

    assert results["first_paint_ms"] == {"table": {"median": 400, "longest": 900, "count": 3}}
    assert results["first_load"]["files"] == {"requests": 1, "wire": 190_000, "raw": 600_000}
    assert results["requests_per_minute"] == {"overview": 32.0}
    assert results["scrolling"] == {
        "frame_ms": 17,
        "longest_frame_ms": 33,
        "elements": 1500,
        "rows": 10_000,
    }
    assert "| Airflow's own API, 50 tabs open | 13 ms | 14 ms | 2 |" in table(FIGURES)
    assert "| first load of the overview, files of the pages: as sent | 190 kB |  |  |" in table(FIGURES)


def test_compared_table_divides_by_other_checkout() -> None:
    other = replace(FIGURES, files=Transfer(45, 95_000, 300_000), requests={"overview": 64.08})

    compared = compared_table(FIGURES, other)

    assert "| first load of the overview, files of the pages: as sent | 190 kB | 95 kB | 2.0 |" in compared
    assert "| requests a minute: overview | 32 | 64 | 0.5 |" in compared
    assert ratios(FIGURES, FIGURES)["first paint: table"] == 1.0


@pytest.mark.parametrize(
    ("page", "url", "is_refresh"),
    [
        ("overview", SOURCES, True),
        ("overview", TOGETHER, True),
        ("overview", f"{TOGETHER}&path=connections", True),
        ("overview", f"{SOURCES}/logs/summary", False),
        ("table", f"{SOURCES}/logs/partitions?limit=150", True),
        ("table", f"{TOGETHER}%2Flogs%2Fsummary&path=connections%2Fa%2Fsources%2Flogs%2Fpartitions%3Flimit%3D1", True),
        ("table", f"{TOGETHER}%2Flogs%2Fsummary", False),
        ("supervisor", f"{SOURCES}/supervised/supervisor", True),
        ("supervisor", f"{TOGETHER}%2Fsupervised%2Fsupervisor&path=connections", True),
        ("supervisor", f"{SOURCES}/supervised/supervisor/history", False),
    ],
)
def test_refreshes_are_found_alone_and_together(page: str, url: str, is_refresh: bool) -> None:
    assert refreshes(page, [sent(url)]) == [7.0] * is_refresh


def test_transfer_adds_up_requests() -> None:
    assert Transfer.of([sent(SOURCES), sent(TOGETHER)]) == Transfer(2, 200, 600)


def test_other_without_pages_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--other", str(tmp_path)])
    assert "build its pages" in capsys.readouterr().err
