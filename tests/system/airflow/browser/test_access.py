"""Accessibility for every user: no finding of axe-core in themes, narrow windows and time zones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import Theme, Visits, findings, go
from tests.support.site import DAG, Site
from tests.support.supervised import SupervisedSource
from tests.system.airflow.browser.conftest import OpenPage
from tests.system.airflow.browser.test_partitions import keys

OURS = "[data-coordination]"
PAGES = {
    "overview": ("", ""),
    "partitions": ("orders", "partitions"),
    "shards": ("clickstream", "shards"),
    "timeline": ("night", "timeline"),
    "acknowledgments": ("orders", "acknowledgments"),
    "workers": ("orders", "workers"),
    "supervisor": ("supervised", "supervisor"),
    "supervisors": ("", "supervisors"),
}


def url_of(site: Site, name: str) -> str:
    source, page = PAGES[name]
    if source:
        return site.at(source, page)
    return f"{site.overview()}?show={page}" if page else site.overview()


def views(site: Site) -> dict[str, str]:
    """Return the addresses of all pages, of those that are lists too, and of the tab of a run."""
    return {
        **{name: url_of(site, name) for name in PAGES},
        **{f"{name} as list": f"{url_of(site, name)}?as=list" for name in ("shards", "timeline", "supervisor")},
        "no supervisor": site.at("orders", "supervisor"),
        "tab": f"/dags/{DAG}/runs/{site.live_run}/plugin/coordination",
    }


def settled(page: Page) -> None:
    """Wait until a page shows what it is about."""
    expect(page.locator(OURS)).to_be_visible()
    expect(page.locator(f"{OURS} [aria-busy=true]")).to_have_count(0)


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.only_deep)])
def test_pages_have_no_accessibility_fault(
    theme: Theme, site: Site, supervised: SupervisedSource, see: OpenPage, axe: Path, visits: Visits
) -> None:
    visits.excuse("^404 GET .*/supervisor")
    found: list[str] = []
    rules = ["color-contrast"] if theme == "dark" else None  # nothing else is another
    page = see(theme=theme)
    for name, url in views(site).items():
        go(page, url)
        settled(page)
        assert page.evaluate("document.documentElement.classList.contains('dark')") == (theme == "dark")
        found += [f"{name}: {finding}" for finding in findings(page, axe, within=OURS, rules=rules)]
    go(page, site.at("orders", partition="delivered/1.json.gz"))
    expect(page.get_by_role("dialog")).to_contain_text("Acknowledgment sets")
    found += [f"drawer: {finding}" for finding in findings(page, axe, within="[role=dialog]", rules=rules)]
    page.get_by_role("dialog").get_by_role("button", name="Park…").click()
    expect(page.get_by_role("alertdialog")).to_be_visible()
    found += [f"dialog: {finding}" for finding in findings(page, axe, within="[role=alertdialog]", rules=rules)]

    assert not found, "\n".join(found)


def test_pages_fit_a_telephone(site: Site, supervised: SupervisedSource, see: OpenPage) -> None:
    page = see(width=390)
    for name in PAGES:
        go(page, url_of(site, name))
        settled(page)
        over = page.locator(OURS).evaluate("element => element.scrollWidth - element.clientWidth")
        assert over <= 0, f"{name} is {over} pixels too wide"
    go(page, site.at("orders", partition="state/parked.json.gz"))
    drawer = page.get_by_role("dialog")
    expect(drawer.get_by_role("button", name="Reopen…")).to_be_visible()
    assert drawer.evaluate("element => element.scrollWidth - element.clientWidth") <= 0


def test_times_are_in_the_zone_of_the_reader(site: Site, see: OpenPage) -> None:
    utc = see(site.at("orders", partition="state/held.json.gz"))
    tokyo = see(site.at("orders", partition="state/held.json.gz"), time_zone="Asia/Tokyo")
    hours = []
    for page in (utc, tokyo):
        lease_ends = page.get_by_role("dialog").locator("dt:text-is('Lease ends') + dd time")
        shown = re.match(r"\d{4}-\d\d-\d\d (\d\d):", lease_ends.inner_text())
        assert shown is not None
        hours.append(int(shown[1]))

    assert (hours[1] - hours[0]) % 24 == 9


def test_page_menus_are_reached_by_keyboard_in_order(site: Site, see: OpenPage) -> None:
    page = see(site.at("orders"))
    expect(keys(page).first).to_be_visible()
    page.get_by_role("link", name="Ingestion", exact=True).last.focus()
    reached = []
    for _ in range(24):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("(e => e.getAttribute('aria-label') ?? e.innerText)(document.activeElement)"))

    wanted = ["Suspend…", "Timeline", "Search text", "Partitions of orders"]
    places = [next(at for at, name in enumerate(reached) if name.startswith(each)) for each in wanted]
    assert places == sorted(places), reached
