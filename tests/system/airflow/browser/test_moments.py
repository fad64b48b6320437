"""Pages during failures: store outage, expired session, deleted partition, missing connection."""

from __future__ import annotations

from collections.abc import Callable

import jwt
from playwright.sync_api import expect

from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.partition import source_identifier
from tests.support.browser import Visits
from tests.support.site import AWAY, Site
from tests.support.standalone import SECRET
from tests.system.airflow.browser.conftest import OpenPage
from tests.system.airflow.browser.test_partitions import keys, row


def test_unavailable_store_is_shown_and_recovers_automatically(site: Site, see: OpenPage, visits: Visits) -> None:
    visits.excuse(r"^503 GET .*/coordination/")
    page = see(site.at("remote", connection=AWAY))
    expect(row(page, "a")).to_be_visible()
    site.cable.cut()
    try:
        expect(page.get_by_role("alert")).to_contain_text("The store is unavailable")
        expect(row(page, "a")).to_be_visible()  # what was known stays
        airflow = see("/dags")
        expect(airflow.get_by_role("link", name="live_ingestion").first).to_be_visible()
        elsewhere = see(site.at("orders"))
        expect(keys(elsewhere).first).to_be_visible()
    finally:
        site.cable.restore()

    expect(page.get_by_role("alert")).to_have_count(0, timeout=90_000)
    expect(page.locator("[data-freshness=live]")).to_be_visible()


def test_ended_session_leads_to_the_login(site: Site, see: OpenPage, visits: Visits) -> None:
    visits.excuse(r"^401 GET ")
    page = see(site.at("orders"), alone=True)
    expect(keys(page).first).to_be_visible()
    claims = jwt.decode(site.tokens["op"], options={"verify_signature": False})
    over = jwt.encode(claims | {"exp": claims["iat"] - 1}, SECRET, algorithm="HS512")
    page.context.add_cookies([{"name": "_token", "value": over, "url": site.airflow.url}])

    alert = page.get_by_role("alert").filter(has_text="Your session has ended")
    expect(alert).to_be_visible()
    expect(keys(page).first).to_be_visible()  # what was known stays
    alert.get_by_role("button", name="Log in again").click()

    expect(page.locator("input[name=username]")).to_be_visible()


def test_open_drawer_reports_a_deleted_partition(
    site: Site, see: OpenPage, visits: Visits, source: Callable[..., str]
) -> None:
    visits.excuse(r"^404 GET .*/partition\?")
    name = source(a=lambda p: p, b=lambda p: p)
    page = see(site.at(name, partition="a"))
    drawer = page.get_by_role("dialog", name="a")
    expect(drawer).to_contain_text("Waiting")

    Administration(site.scenery.store, source_identifier(name)).delete("a")

    expect(drawer.get_by_role("heading", name="This partition no longer exists")).to_be_visible()
    expect(drawer.get_by_role("button", name="Park…")).to_have_count(0)
    # Not after it: a row that gets the focus back stays, marked, until one leaves it.
    expect(keys(page)).to_have_count(1)
    page.keyboard.press("Escape")
    expect(drawer).to_have_count(0)


def test_connection_of_another_type_is_an_error(site: Site, see: OpenPage, visits: Visits) -> None:
    visits.excuse(r"^4\d\d GET .*/coordination/")
    site.airflow.connect("warehouse", "http", host="127.0.0.1")

    page = see(site.at("orders", connection="warehouse"))
    expect(page.get_by_role("alert").first).to_contain_text("is of type 'http'")
    page = see(site.at("orders", connection="nowhere"))
    expect(page.get_by_role("alert").first).to_contain_text("'nowhere' is not defined")
