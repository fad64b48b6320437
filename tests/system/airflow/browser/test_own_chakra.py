"""The pages on a host that shares no Chakra UI with plugins, as Airflow 3.1: made here of any Airflow."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from airflow_provider_coordination.airflow_names import AIRFLOW
from tests.support.browser import COME_TO_REST, Theme, Visits
from tests.support.site import DEFAULT, Site
from tests.system.airflow.browser.conftest import OpenPage
from tests.system.airflow.browser.test_actions import opened, parked

if TYPE_CHECKING:
    from playwright.sync_api import Page

STYLES = """([within, names]) => [...document.querySelectorAll(within + ", " + within + " *")].map(element => {
    const style = getComputedStyle(element);
    return element.tagName + " " + names.map(name => style.getPropertyValue(name)).join("; ");
})"""
"""Returns how each element looks."""
COMPARED = (
    "background-color", "border-bottom-color", "border-radius", "border-top-width", "box-shadow", "color", "display",
    "fill", "font-family", "font-size", "font-weight", "gap", "height", "justify-content", "line-height", "opacity",
    "padding", "position", "stroke", "text-transform", "visibility", "white-space",
)  # fmt: skip
TAKEN = "Object.defineProperty(globalThis, 'ChakraUI', { get: () => undefined, set: () => {} })"


def open_without(see: OpenPage, path: str, **window: Any) -> Page:
    """Open a page on a host that shares no Chakra UI."""
    page = see("/plugin/none", alone=True, **window)
    page.add_init_script(TAKEN)
    page.goto(path)
    return page


def looks(page: Page, within: str) -> list[str]:
    """Return how each element within a selector looks."""
    page.evaluate(COME_TO_REST)
    return page.evaluate(STYLES, [within, COMPARED])  # type: ignore[no-any-return]


def seen(page: Page) -> dict[str, list[str]]:
    """Open the drawer of a partition and one of its dialogs; return how each looks."""
    found = {}
    drawer = opened(page, "a")
    expect(drawer.get_by_role("region", name="History")).to_be_visible()
    found["drawer"] = looks(page, "[role=dialog]")
    drawer.get_by_role("button", name="Reopen…").click()
    expect(page.get_by_role("alertdialog")).to_be_visible()
    found["dialog"] = looks(page, "[role=alertdialog]")
    return found


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_own_chakra_looks_as_the_hosts_does(
    theme: Theme, site: Site, see: OpenPage, source: Callable[..., str]
) -> None:
    path = site.at(source(a=parked))
    expected = seen(see(path, role="admin", theme=theme))
    found = seen(open_without(see, path, role="admin", theme=theme))
    assert {part: len(each) for part, each in found.items()} == {part: len(each) for part, each in expected.items()}
    if AIRFLOW < (3, 3):
        return  # the bundle has the theme of 3.3: the buttons of 3.2 have another colour and size
    pairs = [pair for part in found for pair in zip(found[part], expected[part], strict=True)]
    assert [pair for pair in pairs if pair[0] != pair[1]] == []


def test_page_without_any_chakra_says_what_to_do(site: Site, visits: Visits, see: OpenPage) -> None:
    visits.excuse("vendor/chakra.js")
    page = see("/plugin/none", alone=True)
    page.route("**/vendor/chakra.js", lambda route: route.fulfill(status=404))
    page.add_init_script(TAKEN)
    page.goto(site.overview(DEFAULT))
    expect(page.get_by_role("alert")).to_contain_text("install airflow-provider-coordination from its wheel")
