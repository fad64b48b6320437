"""The table of a source's partitions, and the drawer with all details of one."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Locator, Page, expect

from airflow_provider_coordination.coordination.partition import Partition, format_instant
from tests.support.browser import go
from tests.support.scenery import DAMAGED, HOUR, ODD_KEYS, ODD_SOURCE, owner, soon
from tests.support.site import AWAY, Site
from tests.system.airflow.browser.conftest import OpenPage

STATES = {
    "delivered/1.json.gz": "Awaiting",
    "state/completed.json.gz": "Completed",
    "state/delayed.json.gz": "Delayed",
    "state/due.json.gz": "Due",
    "state/expired.json.gz": "Lease expired",
    "state/failing.json.gz": "Waiting",
    "state/held.json.gz": "Held",
    "state/parked.json.gz": "Parked",
    "state/resting.json.gz": "Resting",
    "state/waiting.json.gz": "Waiting",
}


def keys(page: Page) -> Locator:
    return page.locator("[role=row][data-key]")


def row(page: Page, key: str) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_role("button", name=key, exact=True))


def filters(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def test_each_partition_shows_its_state_as_a_word(site: Site, see: OpenPage) -> None:
    page = see(site.at("orders"))

    for key, state in STATES.items():
        expect(row(page, key).get_by_role("cell").nth(1)).to_have_text(state)
    expect(row(page, "state/parked.json.gz")).to_contain_text(f"failed 3×: {DAMAGED}"[:30])
    expect(
        row(page, "state/held.json.gz").get_by_role("link", name=re.compile("log of .*nightly_orders"))
    ).to_be_visible()
    expect(row(page, "state/unreadable.json.gz")).to_contain_text("unreadable")


def test_each_time_is_whole_on_a_small_screen(site: Site, see: OpenPage) -> None:
    page = see(site.at("orders"), width=1280)

    for key in STATES:
        time = row(page, key).get_by_role("cell").nth(5).locator("[title]")
        assert time.evaluate("element => element.scrollWidth <= element.clientWidth"), time.inner_text()


def test_source_of_unknown_kind_has_no_pages_of_others(site: Site, see: OpenPage, source: Callable[..., str]) -> None:
    name = source(a=lambda partition: partition.with_progress({"kind": "later", "position": 5}))
    page = see(site.at(name))
    expect(keys(page)).to_have_count(1)
    expect(page.get_by_text("later", exact=True)).to_be_visible()

    pages = page.get_by_role("navigation", name="Pages of this source").locator("[data-page]")
    shown = [link.get_attribute("data-page") for link in pages.all()]
    assert shown == ["partitions", "timeline", "acknowledgments", "workers"]


def test_table_begins_with_trouble_and_sorts_on_request(site: Site, see: OpenPage) -> None:
    page = see(site.at("orders"))
    expect(page.get_by_role("columnheader", name="State")).to_have_attribute("aria-sort", "other")
    expect(keys(page).nth(0)).to_have_attribute("data-state", "parked")
    expect(keys(page).nth(1)).to_have_attribute("data-state", "expired")
    page.get_by_role("button", name="Partition", exact=True).click()
    expect(keys(page).first).to_have_attribute("data-key", "delivered/0.json.gz")
    assert filters(page) == {"order": ["key"]}
    page.get_by_role("button", name="State", exact=True).click()
    expect(keys(page).first).to_have_attribute("data-state", "parked")
    assert filters(page) == {}


def test_table_sorts_by_lag(site: Site, see: OpenPage, source: Callable[..., str]) -> None:
    def behind(hours: int) -> Callable[[Partition], Partition]:
        return lambda p: p.with_progress({"kind": "kinesis", "owed_since": format_instant(soon(-hours * HOUR))})

    name = source(a=behind(1), b=lambda p: p, c=behind(3), d=behind(2))
    page = see(site.at(name))
    head = page.get_by_role("columnheader", name="Lag")
    expect(head).to_have_attribute("aria-sort", "none")
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "descending")
    expect(keys(page).first).to_have_attribute("data-key", "c")
    assert [each.get_attribute("data-key") for each in keys(page).all()] == ["c", "d", "a", "b"]
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    expect(keys(page).first).to_have_attribute("data-key", "a")
    assert [each.get_attribute("data-key") for each in keys(page).all()] == ["a", "d", "c", "b"]


def test_shift_selects_a_range_after_rows_have_moved(site: Site, see: OpenPage, source: Callable[..., str]) -> None:
    name = source(**dict.fromkeys("bcdef", lambda p: p))
    page = see(site.at(name, order="key"))
    page.get_by_role("checkbox", name="Select c", exact=True).check()
    site.scenery.make(name, {"a": lambda p: p})
    page.mouse.move(5, 5)
    expect(keys(page)).to_have_count(6)
    page.get_by_role("checkbox", name="Select e", exact=True).click(modifiers=["Shift"])

    expect(page.get_by_role("toolbar")).to_contain_text("3 selected")
    expect(page.get_by_role("checkbox", name="Select d", exact=True)).to_be_checked()


def test_partition_shows_its_holding_time_until_expiry(site: Site, see: OpenPage) -> None:
    page = see(site.at("orders"))

    def held_for(key: str) -> Locator:
        heads = page.get_by_role("columnheader").all_text_contents()
        return row(page, key).get_by_role("cell").nth(heads.index("Held for"))

    expect(page.get_by_role("columnheader", name="Held for")).to_be_visible()
    expect(held_for("state/held.json.gz")).to_have_text("3 h")
    expect(held_for("state/expired.json.gz")).to_have_text("1 h")
    expect(held_for("state/waiting.json.gz")).to_have_text("–")
    page.get_by_role("button", name="state/held.json.gz", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text("Held since")


def test_address_keeps_filters_order_and_search(site: Site, see: OpenPage) -> None:
    page = see(site.at("orders"))
    page.get_by_role("button", name=re.compile("^Closed")).click()
    expect(keys(page)).to_have_count(3)
    page.get_by_role("button", name="Time", exact=True).click()
    expect(page.get_by_role("columnheader", name="Time")).to_have_attribute("aria-sort", "ascending")
    expect(keys(page).first).to_have_attribute("data-key", "state/due.json.gz")
    page.get_by_label("Search text").fill("parked")
    expect(keys(page)).to_have_count(1)

    assert filters(page) == {"status": ["CLOSED"], "order": ["priority"], "search": ["parked"]}
    page.reload()
    expect(keys(page)).to_have_count(1)
    page.get_by_label("Search text").fill("no such key")
    expect(page.get_by_role("heading", name="No partition matches")).to_be_visible()
    page.get_by_role("button", name="Clear filters", exact=True).click()
    expect(row(page, "state/waiting.json.gz")).to_be_visible()
    assert filters(page) == {}


def test_table_refreshes_and_keeps_selection_and_position(
    site: Site, see: OpenPage, source: Callable[..., str]
) -> None:
    name = source(**{f"part-{n:03d}": lambda p: p for n in range(200)})
    page = see(site.at(name, order="key"))
    region = page.get_by_role("region", name=f"Partitions of {name}")
    expect(keys(page).first).to_be_visible()
    region.evaluate("element => element.scrollTop = 4000")
    page.get_by_role("checkbox", name="Select part-090").check()
    site.scenery.change(name, "part-091", lambda p: p.acquired(owner(0), soon(HOUR)))

    page.mouse.move(5, 5)  # nobody points at a row
    expect(row(page, "part-091")).to_contain_text("Held")

    assert region.evaluate("element => element.scrollTop") == 4000
    expect(page.get_by_role("checkbox", name="Select part-090")).to_be_checked()
    expect(page.get_by_role("toolbar")).to_contain_text("1 selected")


def test_drawer_shows_a_whole_partition_at_its_own_address(
    site: Site, see: OpenPage, source: Callable[..., str]
) -> None:
    holder = owner(3)
    name = source(a=lambda p: p.acquired(holder, soon(HOUR)))
    site.scenery.change(name, "a", lambda p: p.failed(DAMAGED).given_up(soon(-HOUR)))
    site.scenery.change(name, "a", lambda p: p.acquired(holder, soon(HOUR)))
    page = see(site.at(name))
    row(page, "a").get_by_role("button", name="a", exact=True).click()

    drawer = page.get_by_role("dialog", name="a")
    expect(drawer).to_contain_text("A job holds its lease")
    expect(drawer.get_by_role("region", name="Failed 1 time in a row")).to_contain_text(DAMAGED)
    log = drawer.get_by_role("link", name="Task instance and log")
    expect(log).to_have_attribute(
        "href", re.compile(r"/dags/nightly_orders/runs/.*/tasks/ingest/mapped/3\?try_number=1$")
    )
    expect(drawer.get_by_role("region", name="History")).to_contain_text("acquired")
    expect(drawer.get_by_role("region", name="History")).to_contain_text(f"failed: {DAMAGED}")
    expect(drawer.get_by_label("progress", exact=True)).to_contain_text('"kind": "s3"')
    drawer.get_by_role("button", name="Copy the name of the owner").click()
    assert page.evaluate("navigator.clipboard.readText()") == holder

    page.reload()
    expect(drawer.get_by_role("button", name="Close")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert "partition" not in filters(page)


def test_names_are_shown_literally(site: Site, see: OpenPage) -> None:
    page = see(site.overview())
    page.get_by_role("link", name=ODD_SOURCE, exact=True).click()
    expect(page.get_by_role("heading", name=ODD_SOURCE, exact=True)).to_be_visible()
    expect(keys(page)).to_have_count(len(ODD_KEYS))

    for key in ODD_KEYS:
        row(page, key).get_by_role("button", name=key, exact=True).click()
        drawer = page.get_by_role("dialog")
        expect(drawer.get_by_role("heading", name=key, exact=True)).to_be_visible()
        assert filters(page)["partition"] == [key]
        expect(drawer.get_by_role("button", name="Close")).to_be_focused()
        page.keyboard.press("Escape")
        expect(drawer).to_have_count(0)
    go(page, site.at(ODD_SOURCE, partition=ODD_KEYS[4]))
    expect(page.get_by_role("dialog")).to_contain_text(f"cannot read {ODD_KEYS[4]}")

    assert "pwned" not in page.title()
    assert page.locator("script:not([src]):text('pwned')").count() == 0


def test_table_works_without_a_mouse(site: Site, see: OpenPage) -> None:
    page = see(site.at("orders"))
    expect(keys(page).first).to_be_visible()
    page.get_by_role("region", name="Partitions of orders").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(page.locator("[data-at='1'] :focus")).to_be_visible()
    opened = page.evaluate("document.activeElement.closest('[data-key]').dataset.key")
    page.keyboard.press("Enter")
    drawer = page.get_by_role("dialog", name=opened)
    expect(drawer.get_by_role("button", name="Close")).to_be_focused()
    page.keyboard.press("Escape")
    expect(drawer).to_have_count(0)

    expect(row(page, opened).get_by_role("button", name=opened, exact=True)).to_be_focused()


def test_dynamodb_partitions_are_searched(site: Site, see: OpenPage) -> None:
    page = see(site.at("remote", connection=AWAY, search="b"))

    expect(keys(page)).to_have_count(1)
    expect(row(page, "b")).to_contain_text("Waiting")
