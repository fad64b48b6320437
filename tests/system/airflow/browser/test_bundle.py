"""The pages bring their own components: what Airflow's version shares with plugins makes no difference."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from airflow_provider_coordination.ui.application import BUNDLE, MISSING_PAGES
from tests.support.browser import COME_TO_REST, Theme
from tests.support.site import DEFAULT, Site
from tests.system.airflow.browser.conftest import OpenPage
from tests.system.airflow.browser.test_actions import opened, parked

if TYPE_CHECKING:
    from playwright.sync_api import Page

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
