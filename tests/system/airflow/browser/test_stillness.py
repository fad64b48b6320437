"""Elements stay under the pointer when a late response or an alarm arrives."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.support.browser import go
from tests.support.depth import at_depth
from tests.support.scenery import HOUR, soon
from tests.support.site import Site
from tests.system.airflow.browser.conftest import OpenPage
from tests.system.airflow.browser.test_actions import held, parked, waiting
from tests.system.airflow.browser.test_partitions import row

WIDTHS = [1280, 1024, 390]
ALARMS = [
    {
        "level": "error",
        "about": "parked",
        "manual": "operations",
        "text": "1 partition is parked. Reopen it once the cause is fixed",
    },
    {
        "level": "error",
        "about": "supervisor",
        "manual": "operations",
        "text": "its supervisor is in state LOST_CONTACT: " + 40 * "no answer ",
    },
    {"level": "warning", "about": "failing", "manual": "operations", "text": "3 partitions are failing"},
]
TROUBLE = {
    "alarms": ALARMS,
    "suspended": {"since": soon(-HOUR).isoformat(), "by": "ann", "reason": 20 * "the warehouse is full "},
    "pending_sets": 12,
    "counts": {"UNASSIGNED": 1234, "ASSIGNED": 5678, "CLOSED": 910, "COMPLETED": 1112},
}
IS_WHOLE = "element => element.scrollHeight <= element.clientHeight && element.scrollWidth <= element.clientWidth"
WATCH = """key => {
    window.places = new Set();
    const look = () => {
        const element = document.querySelector(`[data-key="${key}"]`);
        if (element?.checkVisibility({visibilityProperty: true})) {
            const {x, y} = element.getBoundingClientRect();
            window.places.add(`${x} ${y}`);
        }
        requestAnimationFrame(look);
    };
    look();
}"""
"""Notes, frame by frame, where the row of a partition is seen."""


class Summary:
    """What a page is answered that asks how its source stands."""

    def __init__(self) -> None:
        self.changed: dict[str, Any] = {}
        self.is_held = False
        self._held: list[Route] = []

    def answer(self, route: Route) -> None:
        """Answer as Airflow does, with what was changed; or later."""
        if self.is_held:
            self._held.append(route)
            return
        answer = route.fetch()
        body = answer.json()
        if isinstance(body, list):  # several reads in one request
            asked = parse_qs(urlsplit(route.request.url).query)["path"]
            body = [
                self._changed(one) if path.endswith("/summary") else one for path, one in zip(asked, body, strict=True)
            ]
        else:
            body = {**body, **self.changed}
        route.fulfill(response=answer, body=json.dumps(body))

    def _changed(self, one: dict[str, Any]) -> dict[str, Any]:
        return {**one, "body": {**one["body"], **self.changed}}

    def release(self) -> None:
        """Answer what was asked."""
        self.is_held = False
        while self._held:
            self.answer(self._held.pop())


@contextmanager
def summary_of(page: Page, source: str) -> Iterator[Summary]:
    """Decide what a page is answered."""
    summary = Summary()
    page.route(f"**/sources/{source}/summary", summary.answer)
    page.route(f"**/together?*{quote(f'/sources/{source}/summary', safe='')}*", summary.answer)
    try:
        yield summary
    finally:
        page.unroute_all(behavior="ignoreErrors")  # what is on its way would hide why a test failed


def place(element: Locator) -> tuple[float, float]:
    box = element.bounding_box()
    assert box is not None
    return box["x"], box["y"]


@pytest.mark.deep
@pytest.mark.share(0.5)
@pytest.mark.parametrize("width", at_depth(short=[1280, 390], deep=WIDTHS))
def test_late_alarms_move_no_row(width: int, site: Site, see: OpenPage, source: Callable[..., str]) -> None:
    name = source(a=parked, b=waiting, c=held)
    page = see("/", role="admin", width=width)
    with summary_of(page, name) as summary:
        summary.is_held = True
        page.evaluate(WATCH, "a")
        go(page, site.at(name))
        row(page, "a").wait_for(state="attached")
        summary.release()
        expect(page.locator("[data-alarm]").first).to_contain_text("1 partition is parked")
        expect(page.get_by_role("button", name="Suspend…")).to_be_visible()
        expect(row(page, "a")).to_be_visible()

        assert len(page.evaluate("[...window.places]")) == 1


@pytest.mark.deep
@pytest.mark.parametrize("width", at_depth(short=[1280], deep=WIDTHS))
def test_changing_alarms_move_nothing(width: int, site: Site, see: OpenPage, source: Callable[..., str]) -> None:
    name = source(a=waiting, b=waiting)
    page = see("/", role="admin", width=width)
    with summary_of(page, name) as summary:
        go(page, site.at(name))
        expect(page.get_by_role("button", name="Suspend…")).to_be_visible()
        expect(row(page, "a")).to_be_visible()
        page.evaluate(WATCH, "a")
        tab = page.get_by_role("navigation", name="Pages of this source").get_by_role("link", name="Workers")
        before = place(tab)
        summary.changed = TROUBLE
        expect(page.locator("[data-suspended]")).to_be_visible()

        assert place(tab) == before
        summary.changed = {}
        expect(page.locator("[data-suspended]")).to_have_count(0)
        assert len(page.evaluate("[...window.places]")) == 1


def test_store_outage_moves_nothing(site: Site, see: OpenPage, source: Callable[..., str]) -> None:
    name = source(a=waiting, b=waiting)
    page = see(site.at(name))
    expect(row(page, "a")).to_be_visible()
    page.evaluate(WATCH, "a")
    urls = [f"**/sources/{name}/**", "**/together?*"]
    for url in urls:
        page.route(url, lambda route: route.abort())
    try:
        expect(page.get_by_role("alert")).to_be_visible()
    finally:
        for url in urls:
            page.unroute(url)
    expect(page.get_by_role("alert")).to_have_count(0)

    assert len(page.evaluate("[...window.places]")) == 1


def test_unfolding_shows_all_alarms(site: Site, see: OpenPage, source: Callable[..., str]) -> None:
    name = source(a=waiting)
    page = see("/")
    with summary_of(page, name) as summary:
        summary.changed = TROUBLE
        go(page, site.at(name))
        alarms = page.get_by_role("region", name="Alarms")
        alarms.get_by_role("button", name="and 3 more").click()

        for alarm in ALARMS:
            expect(alarms).to_contain_text(alarm["text"].strip(), ignore_case=True)


@pytest.mark.parametrize(
    "text",
    [
        "1 partition is parked. Reopen it once the cause is fixed",
        "1 lease has expired, and no worker has taken over. Check the workers, or start more jobs",
    ],
)
def test_phone_shows_the_first_alarm_whole(text: str, site: Site, see: OpenPage, source: Callable[..., str]) -> None:
    name = source(a=waiting)
    page = see("/", width=390)
    with summary_of(page, name) as summary:
        summary.changed = {"alarms": [ALARMS[0] | {"text": text}, *ALARMS[1:]]}
        go(page, site.at(name))
        alarm = page.get_by_role("region", name="Alarms").get_by_text(text)

        expect(alarm).to_be_visible()
        assert alarm.evaluate(IS_WHOLE)
