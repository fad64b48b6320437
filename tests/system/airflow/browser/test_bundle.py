"""The pages bring their own components: what Airflow's version shares with plugins makes no difference."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from airflow_provider_coordination.ui.application import BUNDLE, MISSING_PAGES
from tests.support.browser import COME_TO_REST, Theme, Visits
from tests.support.site import DEFAULT, Site
from tests.system.airflow.browser.conftest import OpenPage
from tests.system.airflow.browser.test_actions import opened, parked

if TYPE_CHECKING:
    from playwright.sync_api import Page, Response

LOOK = """selector => {
    const style = getComputedStyle(document.querySelector(selector));
    return ["font-family", "color"].map(name => style.getPropertyValue(name));
}"""
"""Returns the font and the colour of an element."""
TAKEN = "Object.defineProperty(globalThis, 'ChakraUI', { get: () => undefined, set: () => {} })"


def open_without_chakra(see: OpenPage, path: str, theme: Theme) -> Page:
    """Open a page in an Airflow that shares no Chakra UI, as 3.1."""
    page = see("/plugin/none", alone=True, role="admin", theme=theme)
    page.add_init_script(TAKEN)
    page.goto(path)
    return page


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_need_no_chakra_and_follow_airflows_theme(
    theme: Theme, site: Site, see: OpenPage, source: Callable[..., str]
) -> None:
    page = open_without_chakra(see, site.at(source(a=parked)), theme)
    drawer = opened(page, "a")
    expect(drawer.get_by_role("region", name="History")).to_be_visible()
    drawer.get_by_role("button", name="Reopen…").click()
    expect(page.get_by_role("alertdialog")).to_be_visible()
    page.evaluate(COME_TO_REST)
    for part in ("[data-coordination]", "[role=alertdialog]"):
        assert page.evaluate(LOOK, part) == page.evaluate(LOOK, "body")


def test_page_without_the_bundle_says_what_to_do(site: Site, see: OpenPage) -> None:
    page = see("/plugin/none", alone=True)
    page.route(f"**/{BUNDLE}", lambda route: route.fulfill(body=MISSING_PAGES, content_type="text/javascript"))
    page.goto(site.overview(DEFAULT))
    expect(page.get_by_role("alert")).to_contain_text("install its wheel, or run `make venv` in the checkout")


def test_page_whose_file_is_gone_asks_to_reload(
    site: Site, see: OpenPage, visits: Visits, source: Callable[..., str]
) -> None:
    visits.excuse("TimelinePage|the server was upgraded")
    page = see("/plugin/none", alone=True)
    page.goto(site.at(source(a=parked)))
    expect(page.locator("[data-key=a]")).to_be_visible()
    # As after an upgrade of the server: it has other files.
    page.route("**/static/*/TimelinePage-*.js", lambda route: route.fulfill(status=404))
    page.get_by_role("link", name="Timeline").click()
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("the server was upgraded since you opened them")
    page.unroute("**/static/*/TimelinePage-*.js")
    alert.get_by_role("button", name="Reload the page").click()
    expect(alert).to_be_hidden()
    expect(page.locator("[data-page=timeline][aria-current=page]")).to_be_visible()


def test_page_loads_only_its_files_and_keeps_them(site: Site, see: OpenPage) -> None:
    page = see("/plugin/none", alone=True)
    loaded: list[Response] = []
    page.on("response", lambda each: loaded.append(each) if "/coordination/static/" in each.url else None)
    page.goto(site.at("supervised", "supervisor"))
    expect(page.locator("[data-chart]").first).to_be_visible()
    names = {re.sub(r"(-.{8})?[.]js$", "", each.url.rpartition("/")[2]) for each in loaded}
    assert {"coordination", "SupervisorPage"} <= names
    assert not names & {"Overview", "PartitionsPage", "dialogModules"}
    assert all("immutable" in each.headers["cache-control"] for each in loaded)
