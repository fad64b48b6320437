"""The overview: every source as a card or as a row, those in trouble first."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.support.browser import go
from tests.support.scenery import ODD_SOURCE
from tests.support.site import DEFAULT, EMPTY, Site
from tests.system.airflow.browser.conftest import OpenPage
from tests.system.airflow.browser.test_partitions import filters, keys


def test_menu_leads_to_sources_with_trouble_first(site: Site, see: OpenPage) -> None:
    page = see("/")
    page.get_by_role("button", name="Browse").click()
    page.get_by_role("menuitem", name="Ingestion").click()

    section = page.get_by_role("region", name=f"Connection {DEFAULT}")
    cards = section.get_by_role("article")
    expect(section.get_by_role("article", name="orders", exact=True)).to_be_visible()
    names = [card.get_attribute("data-source") for card in cards.all()]

    assert {"orders", "night", "logs", "telemetry", ODD_SOURCE} <= set(names)
    assert names.index("orders") < names.index("night"), "alarms first"
    orders = section.get_by_role("article", name="orders", exact=True)
    expect(orders).to_contain_text("parked")
    expect(orders.get_by_role("img", name=re.compile("1 Parked"))).to_be_visible()
    expect(orders).to_contain_text(re.compile(r"Longest lease\s*3 h"))


def test_alarm_leads_to_its_partitions(site: Site, see: OpenPage) -> None:
    page = see(site.overview(DEFAULT))
    card = page.get_by_role("article", name="orders", exact=True)
    card.get_by_role("link", name="1 partition is parked. Reopen it once the cause is fixed").click()
    expect(keys(page)).to_have_count(1)
    expect(keys(page)).to_have_attribute("data-key", "state/parked.json.gz")
    assert filters(page) == {"parked": ["true"]}

    page.get_by_role("button", name=re.compile("and [0-9]+ more")).click()
    page.get_by_role("link", name="1 lease has expired, and no worker has taken over").click()
    expect(keys(page)).to_have_attribute("data-key", "state/expired.json.gz")
    assert filters(page) == {"expired": ["true"]}


def test_connection_without_sources_explains_their_creation(site: Site, see: OpenPage) -> None:
    page = see(site.overview(EMPTY))

    expect(page.get_by_role("heading", name="No sources yet")).to_be_visible()
    expect(page.get_by_role("article")).to_have_count(0)


def test_table_of_sources_sorts_by_lag(site: Site, see: OpenPage) -> None:
    page = see(site.overview(DEFAULT), alone=True)
    page.get_by_role("group", name="View").get_by_role("button", name="Table").click()
    table = page.get_by_role("table", name=f"Sources of {DEFAULT}")
    expect(table.locator("[data-row='orders']")).to_contain_text("1 partition is parked")
    expect(page.get_by_role("article")).to_have_count(0)
    head = table.get_by_role("columnheader", name="Lag")
    expect(head).to_have_attribute("aria-sort", "none")
    head.get_by_role("button").click()

    expect(head).to_have_attribute("aria-sort", "descending")
    expect(table.locator("[data-row]").first.get_by_role("cell").nth(3)).not_to_have_text("–")
    unknown = [row.get_by_role("cell").nth(3).inner_text() == "–" for row in table.locator("[data-row]").all()]
    assert unknown == sorted(unknown)
    assert filters(page) == {"connection": [DEFAULT], "as": ["table"], "sort": ["-lag"]}
    go(page, site.overview(DEFAULT))
    expect(head).to_have_attribute("aria-sort", "none")
    table.get_by_role("link", name="orders", exact=True).click()
    expect(keys(page).first).to_have_attribute("data-state", "parked")
