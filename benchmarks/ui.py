"""How fast the pages are, in a real browser with `airflow standalone`, compared with a page of Airflow.

- `paint`: from the click on a link within Airflow until the first rows of a page are painted: the table of a source
  with many partitions, the tree of a stream with many shards, the overview of many supervised sources, its list of
  supervisors, the page of a supervisor, and Airflow's own list of DAGs, in turn. The tab has not shown these pages
  before.
- `load`: the same in a new tab, including everything that Airflow loads first. Its scripts are in the browser's cache,
  as for a regular user; `cold` is with an empty cache.
- `transfer`: the requests and bytes of the overview at its first load: of the pages' files, and of the responses.
- `watch`: how many requests an open page sends in a minute, and the response time of the request that refreshes what
  it shows. One request may refresh several things: it counts once.
- `scroll`: the table from the first row to the last by the wheel: the longest time without a frame, and the largest
  number of elements of the document.
- `tabs`: the response time of Airflow's own API while many tabs are open, and while none is.

`--other` measures the pages of another checkout as well, with an Airflow of its own, and prints the ratios. Each page
is opened now in one and now in the other. The checkout needs no environment of its own, and its pages must be built
if its commit builds them. An older commit:

    git worktree add ../before <commit>
    ln -s "$PWD/.venv" ../before/.venv

Usage: python -m benchmarks.ui [--quick] [--other CHECKOUT]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus, urlsplit

import httpx

from tests.support.browser import REST, Window, Windows, chromium, go

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

REPOSITORY = Path(__file__).resolve().parents[1]
SERVER = REPOSITORY / "benchmarks" / "ui_site.py"
PACKAGE = "airflow_provider_coordination"
BUNDLE = Path(PACKAGE, "ui", "static", "coordination.js")
API = "/coordination/"
FILES = "/coordination/static/"

ROW = "[role=row][data-key]"
REGION = "[role=region][data-rows]"
OVERVIEW = "/plugin/coordination"
TABLE = f"{OVERVIEW}/coordination_default/logs/partitions"
PAGES = {
    "table": (TABLE, ROW),
    "tree": (f"{OVERVIEW}/coordination_default/telemetry/shards", "[data-shard]"),
    "overview": (OVERVIEW, "article[data-source]"),
    "supervisors": (f"{OVERVIEW}?show=supervisors", "[data-row]"),
    "supervisor": (f"{OVERVIEW}/coordination_default/supervised/supervisor", "[data-supervisor] [data-chart]"),
    "airflow's dags": ("/dags", "a[href*='/dags/live_ingestion']"),
}
"""The path of each page, and what is there once its first rows are."""
REFRESHES = {
    "table": re.compile(r"/partitions\?"),
    "overview": re.compile(r"connections/coordination_default/sources(?=&|$)"),
    "supervisor": re.compile(r"/supervisor(?=&|$)"),
}
"""The pages that are watched, and what the address of the request that refreshes what they show contains.

A request for several things contains the addresses of all of them.
"""
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
KEEP_RESOURCES = "performance.setResourceTimingBufferSize(10_000)"
RESOURCES = """
() => performance.getEntriesByType("resource").map(
  e => ({url: e.name, began: e.startTime, took: e.duration, wire: e.encodedBodySize, raw: e.decodedBodySize}))
"""
LATER_SECONDS = 2.0
"""How long after the first paint the last files of a page may come."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is measured.

    :param partitions: the partitions in the table.
    :param shards: the shards in the tree.
    :param supervisors: the supervised sources.
    :param repeats: how often each page is opened.
    :param colds: how often each page is loaded with an empty cache.
    :param watched_seconds: how long the requests of an open page are counted.
    :param tabs: how many tabs are open at once.
    :param tabs_seconds: how long requests are sent to Airflow's own API.
    """

    partitions: int = 10_000
    shards: int = 1_000
    supervisors: int = 200
    repeats: int = 9
    colds: int = 3
    watched_seconds: float = 60.0
    tabs: int = 50
    tabs_seconds: float = 20.0


QUICK = Size(
    partitions=1_000, shards=200, supervisors=20, repeats=1, colds=1, watched_seconds=8.0, tabs=3, tabs_seconds=2.0
)


@dataclass(frozen=True, kw_only=True)
class Resource:
    """A request of a page and its response.

    :param url: the address.
    :param began: when it was sent, in milliseconds since the page was requested.
    :param took: until the end of the response, in milliseconds.
    :param wire: the bytes of the body as they were sent, mostly compressed.
    :param raw: the bytes of the body.
    """

    url: str
    began: float
    took: float
    wire: int
    raw: int

    @property
    def path(self) -> str:
        """The path of its address."""
        return urlsplit(self.url).path


@dataclass(frozen=True)
class Transfer:
    """What was transferred; the bytes are those of the bodies.

    :param requests: how many requests were sent.
    :param wire: the bytes as they were sent, mostly compressed.
    :param raw: the bytes.
    """

    requests: int = 0
    wire: int = 0
    raw: int = 0

    @classmethod
    def of(cls, resources: Sequence[Resource]) -> Transfer:
        """Return the sum of requests."""
        return cls(len(resources), sum(each.wire for each in resources), sum(each.raw for each in resources))


@dataclass
class Measurements:
    """What was measured, the times in milliseconds.

    :param paint: from a click within Airflow until the first rows are painted, by page.
    :param load: the same in a new tab.
    :param cold: the same in a new tab with an empty cache.
    :param files: the files of the pages at the first load of the overview.
    :param responses: what the overview has read until its first paint.
    :param requests: how many requests an open page sends in a minute, by page.
    :param refresh: the response times of an open page's refreshes, by page.
    :param frame: the longest time without a frame while the table scrolls from its first row to its last.
    :param usual_frame: the median time between two frames during the scrolling.
    :param elements: the largest number of elements of the document during the scrolling.
    :param rows: the number of rows.
    :param airflow: the response times of Airflow's own API, without tabs and with them.
    """

    paint: dict[str, list[float]] = field(default_factory=dict)
    load: dict[str, list[float]] = field(default_factory=dict)
    cold: dict[str, list[float]] = field(default_factory=dict)
    files: Transfer = Transfer()
    responses: Transfer = Transfer()
    requests: dict[str, float] = field(default_factory=dict)
    refresh: dict[str, list[float]] = field(default_factory=dict)
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
            "loaded_cold_ms": {page: _summary(times) for page, times in self.cold.items()},
            "first_load": {"files": vars(self.files), "responses": vars(self.responses)},
            "requests_per_minute": {page: round(number, 1) for page, number in self.requests.items()},
            "refresh_ms": {page: _summary(times) for page, times in self.refresh.items()},
            "scrolling": {
                "frame_ms": round(self.usual_frame),
                "longest_frame_ms": round(self.frame),
                "elements": self.elements,
                "rows": self.rows,
            },
            "airflow_api_ms": {tabs: _summary(times) for tabs, times in self.airflow.items()},
        }

    def figures(self) -> Iterator[tuple[str, str, Sequence[float]]]:
        """Yield what was measured, its unit, and the values."""
        for what, of_pages in (
            ("first paint", self.paint),
            ("in a new tab", self.load),
            ("in a new tab, with an empty cache", self.cold),
        ):
            yield from ((f"{what}: {page}", "ms", times) for page, times in of_pages.items())
        for what, sent in (("files of the pages", self.files), ("responses", self.responses)):
            yield f"first load of the overview, {what}: requests", "", [sent.requests]
            yield f"first load of the overview, {what}: as sent", "kB", [sent.wire / 1000]
            yield f"first load of the overview, {what}: raw", "kB", [sent.raw / 1000]
        yield from ((f"requests a minute: {page}", "", [number]) for page, number in self.requests.items())
        yield from ((f"refresh: {page}", "ms", times) for page, times in self.refresh.items())
        yield from ((f"Airflow's own API, {tabs} open", "ms", times) for tabs, times in self.airflow.items())
        yield f"time between two frames, scrolling over {self.rows:,} rows", "ms", [self.usual_frame]
        yield "longest time between two frames", "ms", [self.frame]
        yield "elements of the document at the most", "", [self.elements]


@dataclass(frozen=True, kw_only=True)
class Site:
    """An Airflow that serves the pages of a checkout.

    :param url: its address.
    :param token: of a user who may operate.
    """

    url: str
    token: str


@contextmanager
def serving(checkout: Path, size: Size) -> Iterator[subprocess.Popen[str]]:
    """Start a process that serves the pages of a checkout, and end it; `site_of` waits for its Airflow."""
    process = subprocess.Popen(
        [sys.executable, "-P", SERVER, *map(str, (size.partitions, size.shards, size.supervisors))],
        env={**os.environ, "PYTHONPATH": str(checkout)},
        cwd=checkout,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.communicate()  # it ends once its input has


def site_of(process: subprocess.Popen[str], checkout: Path) -> Site:
    """Return the Airflow that a process serves, once it does.

    :raises RuntimeError: if the process has ended, or serves another checkout.
    """
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            found = json.loads(line)
            package = found.pop("package")
            if Path(package).resolve() != (checkout / PACKAGE).resolve():
                raise RuntimeError(f"the pages are of '{package}', not of '{checkout}'")
            return Site(**found)
    raise RuntimeError(f"the Airflow of '{checkout}' has not started; its last lines are above")


class Bench:
    """A browser on an Airflow.

    :param browser: the browser.
    :param site: the Airflow.
    :param size: how much is measured.
    """

    def __init__(self, browser: Browser, site: Site, size: Size) -> None:
        self.figures = Measurements()
        self._site = site
        self._size = size
        self._windows = Windows(browser, site.url)
        self._window = Window(site.token)
        self._context = self._new_context()

    def load_cold(self, page: str) -> None:
        """Load a page with an empty cache."""
        context = self._new_context()
        opened, painted = self._loaded(context, page)
        self.figures.cold.setdefault(page, []).append(painted)
        if page == "overview":
            opened.wait_for_timeout(LATER_SECONDS * 1000)
            found = list(_resources(opened))
            self.figures.files = Transfer.of([each for each in found if each.path.startswith(FILES)])
            self.figures.responses = Transfer.of(
                [each for each in found if not each.path.startswith(FILES) and each.began < painted]
            )
        context.close()

    def fill_cache(self, page: str) -> None:
        """Load a page, so that the next time its files are in the cache."""
        opened, _ = self._loaded(self._context, page)
        opened.close()

    def load(self, page: str) -> None:
        """Load a page in a new tab."""
        opened, painted = self._loaded(self._context, page)
        opened.close()
        self.figures.load.setdefault(page, []).append(painted)

    def paint(self, page: str) -> None:
        """Go to a page within Airflow, in a tab that has not shown it."""
        opened = self._context.new_page()
        opened.goto(REST)
        opened.wait_for_timeout(500)
        began = float(opened.evaluate(CLICKED))
        path, selector = PAGES[page]
        go(opened, path)
        painted = float(opened.evaluate(PAINTED, selector))
        opened.close()
        self.figures.paint.setdefault(page, []).append(painted - began)

    def watch(self, page: str) -> None:
        """Count the requests of an open page, and time its refreshes."""
        opened, _ = self._loaded(self._context, page)
        opened.wait_for_timeout(LATER_SECONDS * 1000)
        since = float(opened.evaluate(CLICKED))
        opened.wait_for_timeout(self._size.watched_seconds * 1000)
        until = float(opened.evaluate(CLICKED))
        sent = [each for each in _resources(opened) if since <= each.began < until]
        opened.close()
        self.figures.requests[page] = len(sent) / (until - since) * 60_000
        self.figures.refresh[page] = refreshes(page, sent)

    def scroll(self) -> None:
        """Scroll through the table."""
        opened, _ = self._loaded(self._context, "table")
        found = opened.evaluate(SCROLL, REGION)
        opened.close()
        self.figures.frame, self.figures.usual_frame = max(found["frames"]), statistics.median(found["frames"])
        self.figures.elements, self.figures.rows = found["elements"], found["rows"]

    def open_tabs(self) -> None:
        """Time Airflow's own API while no tab is open, and while many are."""
        self.figures.airflow["no tab"] = self._airflow_answers()
        pages = []
        for _ in range(self._size.tabs):
            pages.append(self._context.new_page())
            pages[-1].goto(TABLE, wait_until="commit")
        for page in pages:
            page.wait_for_selector(ROW, timeout=120_000)
        self.figures.airflow[f"{self._size.tabs} tabs"] = self._airflow_answers()
        for page in pages:
            page.close()

    def _new_context(self) -> BrowserContext:
        context = self._windows.context(self._window)
        context.add_init_script(KEEP_RESOURCES)
        return context

    def _loaded(self, context: BrowserContext, page: str) -> tuple[Page, float]:
        path, selector = PAGES[page]
        opened = context.new_page()
        opened.goto(path, wait_until="commit")
        opened.wait_for_load_state("domcontentloaded")
        return opened, float(opened.evaluate(PAINTED, selector))

    def _airflow_answers(self) -> list[float]:
        """Send requests to Airflow's own API repeatedly; return their response times in milliseconds."""
        times = []
        headers = {"Authorization": f"Bearer {self._site.token}"}
        until = time.monotonic() + self._size.tabs_seconds
        with httpx.Client(base_url=self._site.url, headers=headers, trust_env=False, timeout=60) as client:
            while time.monotonic() < until:
                began = time.monotonic()
                client.get("/api/v2/dags").raise_for_status()
                times.append((time.monotonic() - began) * 1000)
                time.sleep(0.1)
        return times


def measure(benches: Sequence[Bench], size: Size) -> None:
    """Measure everything, now in one Airflow and now in the other."""
    for turn in range(size.colds):
        for page in PAGES:
            for bench in _in_turn(benches, turn):
                bench.load_cold(page)
    for page in PAGES:
        for bench in benches:
            bench.fill_cache(page)
    for turn in range(size.repeats):
        for page in PAGES:
            for bench in _in_turn(benches, turn):
                bench.load(page)
                bench.paint(page)
    for page in REFRESHES:
        for bench in benches:
            bench.watch(page)
    for bench in benches:
        bench.scroll()
    for bench in benches:
        bench.open_tabs()


def _in_turn(benches: Sequence[Bench], turn: int) -> Sequence[Bench]:
    """Return the benches in an order that changes with each turn: the first one may find the machine colder."""
    return benches[::-1] if turn % 2 else benches


def refreshes(page: str, sent: Sequence[Resource]) -> list[float]:
    """Return how long those requests took that refresh what a page shows, in milliseconds.

    :param page: one of `REFRESHES`.
    :param sent: the requests of the page.
    """
    return [each.took for each in sent if REFRESHES[page].search(unquote_plus(each.url))]


def _resources(page: Page) -> list[Resource]:
    """Return the requests that a page has sent to the provider's routes, and whose responses have come."""
    found = (Resource(**each) for each in page.evaluate(RESOURCES))
    return [each for each in found if each.path.startswith(API)]


def _summary(times: Sequence[float]) -> dict[str, int]:
    return {"median": round(statistics.median(times)), "longest": round(max(times)), "count": len(times)}


def table(figures: Measurements) -> str:
    """Return the measurements as a table in Markdown."""
    lines = ["| | median | longest | times |", "|---|--:|--:|--:|"]
    for what, unit, values in figures.figures():
        longest, times = (_cell(max(values), unit), str(len(values))) if len(values) > 1 else ("", "")
        lines.append(f"| {what} | {_cell(statistics.median(values), unit)} | {longest} | {times} |")
    return "\n".join(lines)


def ratios(this: Measurements, other: Measurements) -> dict[str, float]:
    """Return the medians of this checkout divided by those of the other one, by what was measured."""
    medians = {what: statistics.median(values) for what, _, values in other.figures()}
    return {
        what: round(statistics.median(values) / medians[what], 2)
        for what, _, values in this.figures()
        if medians.get(what)
    }


def compared_table(this: Measurements, other: Measurements) -> str:
    """Return the medians of two checkouts as a table in Markdown."""
    before = {what: statistics.median(values) for what, _, values in other.figures()}
    ratio = ratios(this, other)
    lines = ["| | this | other | this / other |", "|---|--:|--:|--:|"]
    for what, unit, values in this.figures():
        then = _cell(before[what], unit) if what in before else ""
        lines.append(f"| {what} | {_cell(statistics.median(values), unit)} | {then} | {ratio.get(what, '')} |")
    return "\n".join(lines)


def _cell(value: float, unit: str) -> str:
    return f"{value:,.0f} {unit}".rstrip()


def _described(checkout: Path) -> str:
    """Return the commit of a checkout, and whether it was changed since."""
    described = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--exclude", "*"]
    return subprocess.run(described, capture_output=True, text=True, check=False).stdout.strip() or "no commit"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sources, few tabs, and each page once")
    parser.add_argument("--other", type=Path, metavar="CHECKOUT", help="a checkout of another commit, to compare with")
    options = parser.parse_args(arguments)
    size = QUICK if options.quick else Size()
    checkouts = {"this": REPOSITORY} | ({"other": options.other.resolve()} if options.other else {})
    for checkout in checkouts.values():
        if not (checkout / BUNDLE).is_file():
            parser.error(f"'{checkout}' has no {BUNDLE}: name a checkout, and build its pages (python tools/pages.py)")
    found = measured(checkouts, size)
    print(f"{size.partitions:,} partitions, {size.shards:,} shards, {size.supervisors:,} supervisors; ", end="")
    print(", ".join(f"{name}: {_described(checkout)}" for name, checkout in checkouts.items()) + "\n")
    this, other = found["this"], found.get("other")
    if other is None:
        print(f"{table(this)}\n\n{json.dumps(this.as_json())}")
        return
    print(f"{compared_table(this, other)}\n")
    print(json.dumps({name: each.as_json() for name, each in found.items()} | {"ratios": ratios(this, other)}))


def measured(checkouts: Mapping[str, Path], size: Size) -> dict[str, Measurements]:
    """Return the measurements of each checkout, by its name."""
    with ExitStack() as stack:
        processes = {name: stack.enter_context(serving(checkout, size)) for name, checkout in checkouts.items()}
        sites = {name: site_of(process, checkouts[name]) for name, process in processes.items()}
        browser = stack.enter_context(chromium())
        benches = {name: Bench(browser, site, size) for name, site in sites.items()}
        measure(list(benches.values()), size)
        return {name: bench.figures for name, bench in benches.items()}


if __name__ == "__main__":
    main()
