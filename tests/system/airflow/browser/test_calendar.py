"""The calendar of intervals: those that a source counts, and those that runs of a backfill ingest."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.support.browser import findings, go
from tests.support.scenery import HOUR, Scenery
from tests.support.site import Site
from tests.system.airflow.browser.conftest import OpenPage
from tests.system.airflow.browser.test_access import OURS, settled
from tests.system.airflow.browser.test_partitions import filters

YESTERDAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
THIS_HOUR = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)


@dataclass
class Hours:
    """A connection with a source that counts hours, `clicks`, and the runs of a day of another one, `orders`."""

    site: Site
    connection: str

    def at(self, source: str, **query: object) -> str:
        return self.site.at(source, "calendar", connection=self.connection, **query)


@pytest.fixture(scope="module")
def hours(site: Site) -> Iterator[Hours]:
    connection = f"hours_{uuid.uuid4().hex[:8]}"
    url = f"sqlite:///{site.folder}/{connection}.db"
    site.airflow.connect(connection, "coordination", extra={"store": "sql", "url": url})
    with closing(Scenery(url)) as scenery:
        scenery.counted("clicks")
        scenery.backfilled("orders", YESTERDAY)
        yield Hours(site, connection)
    site.airflow.disconnect(connection)


def cell(page: Page, start: datetime) -> Locator:
    return page.locator(f"[data-interval='{start:%Y-%m-%dT%H:%M:%S}.000Z']")


def test_calendar_shows_complete_stuck_and_late_hours(hours: Hours, see: OpenPage) -> None:
    page = see(hours.at("clicks"))
    grid = page.get_by_role("grid", name="Intervals of clicks, in UTC")
    expect(grid.get_by_role("columnheader")).to_have_count(25)
    expect(cell(page, THIS_HOUR - 10 * HOUR)).to_have_attribute("data-state", "complete")
    expect(cell(page, THIS_HOUR - 7 * HOUR)).to_have_attribute("data-state", "reporting")
    expect(cell(page, THIS_HOUR - 5 * HOUR)).to_have_attribute("data-state", "due")
    expect(cell(page, THIS_HOUR - 2 * HOUR)).to_have_attribute("data-state", "failed")
    expect(cell(page, THIS_HOUR - 60 * HOUR)).to_have_attribute("data-state", "none")
    late = cell(page, THIS_HOUR - 30 * HOUR)
    expect(late).to_have_attribute("data-late", "true")
    late.hover()
    expect(page.locator("[data-pointed]")).to_contain_text("Late, after it was reported: 12 records")
    expect(page.get_by_role("list", name="Legend")).to_contain_text("with late records")


def test_calendar_is_used_by_keyboard(hours: Hours, see: OpenPage) -> None:
    page = see(hours.at("clicks"))
    first = page.locator("[data-cell][tabindex='0']")
    expect(first).to_have_count(1)
    expect(first).to_have_attribute("data-state", "failed")
    stuck = cell(page, THIS_HOUR - 2 * HOUR)
    stuck.focus()
    expect(page.locator("[data-pointed]")).to_contain_text("302 records")
    expect(page.locator("[data-pointed]")).to_contain_text("1 left out by event time" if 2 % 3 == 1 else "2 left out")
    page.keyboard.press("ArrowDown")
    expect(cell(page, THIS_HOUR - 26 * HOUR)).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(page.get_by_role("searchbox", name="Search text")).to_have_value(re.compile("shardId"))
    assert "search" in filters(page)


def test_calendar_of_a_backfill_leads_to_its_partitions(hours: Hours, see: OpenPage) -> None:
    page = see(hours.at("orders"))
    states = {3: "failed", 4: "failed", 5: "running", 6: "waiting", 7: "complete", 20: "none", 21: "none"}
    for hour, state in states.items():
        expect(cell(page, YESTERDAY + hour * HOUR)).to_have_attribute("data-state", state)
    name = cell(page, YESTERDAY + 3 * HOUR).get_attribute("aria-label")
    assert name is not None and re.search(
        "03:00 to 04:00 UTC: Failed; partitions: 1 closed, 1 completed, 1 parked", name
    )
    cell(page, YESTERDAY + 3 * HOUR).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"orders@{YESTERDAY:%Y-%m-%d}T03:00:00Z")
    page.get_by_role("link", name="Calendar").click()
    page.get_by_role("link", name="All of orders").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("orders")


def test_calendar_is_a_list_too(hours: Hours, see: OpenPage) -> None:
    page = see(hours.at("orders"))
    page.get_by_role("button", name="List", exact=True).click()
    rows = page.get_by_role("table", name="Intervals").locator("[data-row]")
    expect(rows).to_have_count(22)
    expect(rows.filter(has_text="03:00 to 04:00")).to_contain_text("1 parked")
    page.get_by_role("button", name="7 d").click()
    expect(page.get_by_role("button", name="7 d")).to_have_attribute("aria-pressed", "true")
    assert filters(page) == {"as": ["list"], "days": ["7"]}
    page.get_by_role("button", name="Earlier").click()
    page.get_by_role("button", name="Earlier").click()
    expect(page.get_by_role("heading", name="No intervals in this time range")).to_be_visible()


def test_source_with_only_backfills_leads_to_its_calendar(hours: Hours, see: OpenPage) -> None:
    page = see(hours.site.at("orders", connection=hours.connection))
    page.get_by_role("link", name="Calendar").click()
    expect(cell(page, YESTERDAY + 3 * HOUR)).to_have_attribute("data-state", "failed")


def test_sources_without_intervals_have_no_calendar(site: Site, see: OpenPage) -> None:
    page = see(site.at("orders"))
    expect(page.get_by_role("link", name="Timeline")).to_be_visible()
    expect(page.get_by_role("link", name="Calendar")).to_have_count(0)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_calendar_has_no_serious_accessibility_fault(
    theme: str, hours: Hours, see: OpenPage, axe: Path, tmp_path: Path
) -> None:
    page = see(theme=theme)  # type: ignore[arg-type]
    folder = Path(os.environ.get("CALENDAR_PICTURES", tmp_path))
    for source in ("clicks", "orders"):
        go(page, hours.at(source))
        settled(page)
        cell(page, (THIS_HOUR - 2 * HOUR) if source == "clicks" else YESTERDAY + 3 * HOUR).hover()
        page.screenshot(path=folder / f"calendar-{source}-{theme}.png")
        assert findings(page, axe, within=OURS) == []


def test_calendar_fits_a_telephone(hours: Hours, see: OpenPage, tmp_path: Path) -> None:
    page = see(hours.at("clicks"), width=390)
    settled(page)
    page.screenshot(path=Path(os.environ.get("CALENDAR_PICTURES", tmp_path)) / "calendar-phone.png")
    assert page.locator(OURS).evaluate("element => element.scrollWidth - element.clientWidth") <= 0
