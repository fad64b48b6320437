"""How fast the pages are, in a real browser with `airflow standalone`, compared with a page of Airflow.

- `paint`: from the click on a link within Airflow until the first rows of a page are painted: the table of a source
  with many partitions, the tree of a stream with many shards, the overview, and Airflow's own list of DAGs, in turn.
  The tab has not shown these pages before.
- `load`: the same in a new tab, including everything that Airflow loads first. Its scripts are in the browser's cache,
  as for a regular user; `cold` is with an empty cache.
- `refresh`: the response to the request that an open page sends every two seconds.
- `scroll`: the table from the first row to the last by the wheel: the longest time without a frame, and the largest
  number of elements of the document.
- `tabs`: the response time of Airflow's own API while many tabs are open, and while none is.

Usage: python -m benchmarks.ui [--quick]
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from tests.support.browser import REST, Window, Windows, chromium, go
from tests.support.site import Site, open_scenery, open_site
from tests.support.standalone import starting_airflow

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

REPOSITORY = Path(__file__).resolve().parents[1]
DAG_FILE = REPOSITORY / "tests" / "system" / "airflow" / "dags" / "live_ingestion.py"

ROW = "[role=row][data-key]"
REGION = "[role=region][data-rows]"
PAINTED = """
selector => new Promise(resolve => {
  const check = () => document.querySelector(selector)
    ? requestAnimationFrame(() => setTimeout(() => resolve(performance.now())))
    : requestAnimationFrame(check);
  check();
})
"""
"""The instant of the first paint, in milliseconds since the page was requested."""
CLICKED = "() => performance.now()"
SCROLL = """
async selector => {
  const area = document.querySelector(selector);
  const frames = [];
  let elements = 0, before = performance.now();
  for (let still = 0; still < 180;) {
    const top = area.scrollTop;
    area.scrollTop += 600;
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    frames.push(now - before);
    before = now;
    elements = Math.max(elements, document.getElementsByTagName("*").length);
    still = area.scrollTop === top ? still + 1 : 0;
  }
  return {frames, elements, rows: Number(area.dataset.rows)};
}
"""
"""The times between two frames, in milliseconds; scrolls until no more rows appear for three seconds."""
REFRESHES = """
() => performance.getEntriesByType("resource").filter(e => e.name.includes("/partitions?")).map(e => e.duration)
"""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is measured.

    :param partitions: the partitions in the table.
    :param shards: the shards in the tree.
    :param repeats: how often each page is opened.
    :param watched_seconds: how long the refreshes of an open page are timed.
    :param tabs: how many tabs are open at once.
    :param tabs_seconds: how long requests are sent to Airflow's own API.
    """

    partitions: int = 10_000
    shards: int = 1_000
    repeats: int = 9
    watched_seconds: float = 40.0
    tabs: int = 50
    tabs_seconds: float = 20.0


QUICK = Size(repeats=2, watched_seconds=8.0, tabs=5, tabs_seconds=3.0)


@dataclass
class Measurements:
    """What was measured, in milliseconds.

    :param paint: from a click within Airflow until the first rows are painted, by page.
    :param load: the same in a new tab.
    :param cold: the same in a new tab with an empty cache, once.
    :param refresh: the response times of an open page's refreshes.
    :param frame: the longest time without a frame while the table scrolls from its first row to its last.
    :param usual_frame: the median time between two frames during the scrolling.
    :param elements: the largest number of elements of the document during the scrolling.
    :param rows: the number of rows.
    :param airflow: the response times of Airflow's own API, without tabs and with them.
    """

    paint: dict[str, list[float]] = field(default_factory=dict)
    load: dict[str, list[float]] = field(default_factory=dict)
    cold: dict[str, float] = field(default_factory=dict)
    refresh: list[float] = field(default_factory=list)
    frame: float = 0.0
    usual_frame: float = 0.0
    elements: int = 0
    rows: int = 0
    airflow: dict[str, list[float]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the measurements as JSON."""
        return {
            "first_paint_ms": {page: _summary(times) for page, times in self.paint.items()},
            "loaded_ms": {page: _summary(times) for page, times in self.load.items()},
            "loaded_cold_ms": {page: round(cold) for page, cold in self.cold.items()},
            "refresh_ms": _summary(self.refresh),
            "scrolling": {
                "frame_ms": round(self.usual_frame),
                "longest_frame_ms": round(self.frame),
                "elements": self.elements,
                "rows": self.rows,
            },
            "airflow_api_ms": {tabs: _summary(times) for tabs, times in self.airflow.items()},
        }


class Bench:
    """A browser on an Airflow site.

    :param browser: the browser.
    :param site: the Airflow.
    :param size: how much is measured.
    """

    def __init__(self, browser: Browser, site: Site, size: Size) -> None:
        self._site = site
        self._size = size
        self._windows = Windows(browser, site.airflow.url)
        self._window = Window(site.tokens["op"])
        self._context = self._windows.context(self._window)
        self._pages = {
            "table": (site.at("logs"), ROW),
            "tree": (site.at("telemetry", "shards"), "[data-shard]"),
            "overview": (site.overview(), "article[data-source]"),
            "airflow's dags": ("/dags", "a[href*='/dags/live_ingestion']"),
        }

    def measure(self) -> Measurements:
        """Measure everything."""
        figures = Measurements(paint={page: [] for page in self._pages}, load={page: [] for page in self._pages})
        for page in self._pages:
            figures.cold[page] = self._loaded(page, alone=True)
        for turn in range(self._size.repeats + 1):
            for page in self._pages:
                loaded, painted = self._loaded(page), self._painted(page)
                if turn:  # the first turn fills the cache
                    figures.load[page].append(loaded)
                    figures.paint[page].append(painted)
        self._scroll(figures)
        self._refresh(figures)
        self._tabs(figures)
        return figures

    def _open(self, page: str, *, alone: bool = False) -> Page:
        context = self._windows.context(self._window) if alone else self._context
        opened = context.new_page()
        opened.goto(self._pages[page][0], wait_until="commit")
        return opened

    def _painted(self, page: str) -> float:
        opened = self._context.new_page()
        opened.goto(REST)
        opened.wait_for_timeout(500)
        began = float(opened.evaluate(CLICKED))
        go(opened, self._pages[page][0])
        painted = float(opened.evaluate(PAINTED, self._pages[page][1]))
        opened.close()
        return painted - began

    def _loaded(self, page: str, *, alone: bool = False) -> float:
        opened = self._open(page, alone=alone)
        opened.wait_for_load_state("domcontentloaded")
        painted = float(opened.evaluate(PAINTED, self._pages[page][1]))
        opened.close()
        return painted

    def _scroll(self, figures: Measurements) -> None:
        page = self._open("table")
        page.wait_for_selector(ROW)
        found = page.evaluate(SCROLL, REGION)
        figures.frame, figures.usual_frame = max(found["frames"]), statistics.median(found["frames"])
        figures.elements, figures.rows = found["elements"], found["rows"]
        page.close()

    def _refresh(self, figures: Measurements) -> None:
        page = self._open("table")
        page.wait_for_selector(ROW)
        page.wait_for_timeout(self._size.watched_seconds * 1000)
        figures.refresh = [float(took) for took in page.evaluate(REFRESHES)[1:]]
        page.close()

    def _tabs(self, figures: Measurements) -> None:
        figures.airflow["no tab"] = self._airflow_answers()
        pages = [self._open("table") for _ in range(self._size.tabs)]
        for page in pages:
            page.wait_for_selector(ROW, timeout=120_000)
        figures.airflow[f"{self._size.tabs} tabs"] = self._airflow_answers()
        for page in pages:
            page.close()

    def _airflow_answers(self) -> list[float]:
        """Send requests to Airflow's own API repeatedly; return their response times in milliseconds."""
        times = []
        headers = {"Authorization": f"Bearer {self._site.tokens['op']}"}
        until = time.monotonic() + self._size.tabs_seconds
        with httpx.Client(base_url=self._site.airflow.url, headers=headers, trust_env=False, timeout=60) as client:
            while time.monotonic() < until:
                began = time.monotonic()
                client.get("/api/v2/dags").raise_for_status()
                times.append((time.monotonic() - began) * 1000)
                time.sleep(0.1)
        return times


def _summary(times: Sequence[float]) -> dict[str, int]:
    return {"median": round(statistics.median(times)), "longest": round(max(times)), "count": len(times)}


def table(figures: Measurements) -> str:
    """Return the measurements as a table in Markdown."""
    rows = [(f"first paint: {page}", times) for page, times in figures.paint.items()]
    rows += [(f"in a new tab: {page}", times) for page, times in figures.load.items()]
    rows += [("refresh: answer", figures.refresh)]
    rows += [(f"Airflow's own API, {tabs} open", times) for tabs, times in figures.airflow.items()]
    lines = ["| | median | longest | times |", "|---|--:|--:|--:|"]
    for what, times in rows:
        lines.append(f"| {what} | {statistics.median(times):.0f} ms | {max(times):.0f} ms | {len(times)} |")
    for page, cold in figures.cold.items():
        lines.append(f"| in a new tab, with an empty cache: {page} | {cold:.0f} ms | | 1 |")
    frames = f"{figures.usual_frame:.0f} ms | {figures.frame:.0f} ms"
    lines.append(f"| time between two frames, scrolling over {figures.rows:,} rows | {frames} | |")
    lines.append(f"| elements of the document at the most | {figures.elements:,} | | |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="each page twice and five tabs, for a shorter time")
    options = parser.parse_args(arguments)
    size = QUICK if options.quick else Size()
    with tempfile.TemporaryDirectory(prefix="coordination-ui-", ignore_cleanup_errors=True) as name:
        folder, dags = Path(name), Path(name) / "brought"
        dags.mkdir()
        shutil.copy(DAG_FILE, dags)
        with (
            starting_airflow(folder, dags, {}) as airflow,
            open_scenery(airflow.store_url, partitions=size.partitions, shards=size.shards) as scenery,
            chromium() as browser,
        ):
            airflow.wait_for_dags()
            with open_site(airflow, scenery, folder, away=None) as site:
                figures = Bench(browser, site, size).measure()
    print(f"{size.partitions:,} partitions, {size.shards:,} shards:\n")
    print(table(figures))
    print()
    print(json.dumps(figures.as_json()))


if __name__ == "__main__":
    main()
