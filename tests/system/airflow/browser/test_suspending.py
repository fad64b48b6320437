"""A source at work is suspended; the last test of this folder, since its job ends."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.support.site import DAG, Site
from tests.system.airflow.browser.conftest import OpenPage
from tests.system.airflow.browser.test_actions import confirm
from tests.system.airflow.browser.test_live import live_shards


def test_suspended_source_comes_to_rest_and_its_task_succeeds(site: Site, see: OpenPage) -> None:
    site.airflow.until("the job works", lambda: bool(live_shards(site)))
    page = see(site.at("live"))
    page.get_by_role("button", name="Suspend…").click()
    confirm(page, "Suspend", "the warehouse is full")

    site.airflow.until("nobody holds anything", lambda: not live_shards(site))
    expect(page.locator("[role=row][data-state=held]")).to_have_count(0)
    assert site.airflow.wait_for_run(DAG, site.live_run) == "success"
    page.get_by_role("button", name="Resume…").click()
    confirm(page, "Resume", "emptied")
    expect(page.locator("[data-suspended]")).to_have_count(0)
