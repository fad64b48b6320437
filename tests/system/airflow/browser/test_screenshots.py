"""The pictures of the manual: with SCREENSHOTS=1 they are written to docs/images."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import go
from tests.support.site import DAG, DEFAULT, Site
from tests.support.spark_job import REPOSITORY
from tests.support.supervised import SupervisedSource
from tests.system.airflow.browser.conftest import OpenPage
from tests.system.airflow.browser.test_access import settled
from tests.system.airflow.browser.test_live import live_shards

IMAGES = REPOSITORY / "docs" / "images"
LARGEST_BYTES = 250_000


@pytest.fixture
def picture(tmp_path: Path) -> Callable[..., None]:
    """Takes a picture of a page that shows a text."""
    folder = IMAGES if os.environ.get("SCREENSHOTS") == "1" else tmp_path
    folder.mkdir(exist_ok=True)

    def take(page: Page, name: str, shows: str) -> None:
        settled(page)
        expect(page.get_by_text(shows).first).to_be_visible()
        page.mouse.move(640, 5)
        page.wait_for_timeout(300)  # what glides into its place
        page.screenshot(path=folder / f"ui-{name}.png")
        assert (folder / f"ui-{name}.png").stat().st_size < LARGEST_BYTES

    return take


@pytest.mark.only_deep
def test_screenshots_of_the_manual_match_the_pages(site: Site, see: OpenPage, picture: Callable[..., None]) -> None:
    site.airflow.until("the job works", lambda: len(live_shards(site)) >= 3)
    page = see(site.overview(DEFAULT), role="admin")
    picture(page, "overview", "night")
    go(page, site.at("orders"))
    picture(page, "partitions", "state/parked.json.gz")
    go(page, site.at("orders", partition="state/held.json.gz"))
    picture(page, "partition", "Task instance and log")
    go(page, site.at("orders", partition="state/parked.json.gz"))
    page.get_by_role("dialog").get_by_role("button", name="Reopen…").click()
    page.get_by_role("alertdialog").get_by_label("Reason").fill("the file is fixed")
    picture(page, "action", "Risk:")
    go(page, site.at("clickstream", "shards", zoom="fit"))
    picture(page, "shards", "1 hole")
    go(page, site.at("night", "timeline", window="6h"))
    picture(page, "timeline", "orders-00.json.gz")
    go(page, site.at("orders", "acknowledgments"))
    picture(page, "acknowledgments", "quality check")
    go(page, site.at("live", "workers"))
    picture(page, "workers", "Live")
    with closing(SupervisedSource(site.scenery.url, "shop clicks").hour()):
        go(page, site.at("shop clicks", "supervisor"))
        picture(page, "supervisor", "Records delivered")
    go(page, f"/dags/{DAG}/runs/{site.live_run}/tasks/ingest/plugin/coordination-task")
    picture(page, "task", "held now")
    picture(see(site.at("orders"), role="admin", theme="dark"), "dark", "state/parked.json.gz")
    picture(see(site.overview(DEFAULT), role="admin", width=390), "phone", "night")
    site.scenery.counted("page views")
    go(page, site.at("page views", "calendar"))
    picture(page, "calendar", "Being reported")
