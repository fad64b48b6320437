"""Pages with thousands of partitions and many users."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from playwright.sync_api import expect

from tests.support.browser import Visits, go
from tests.support.site import Site
from tests.support.waiting import PATIENCE_SECONDS
from tests.system.airflow.browser.conftest import OpenPage, partition_count

TABS = 50
SECONDS = 4.0


def test_thousands_of_partitions_scroll_and_few_are_drawn(site: Site, see: OpenPage, visits: Visits) -> None:
    visits.excuse(r"^503 GET .*/coordination/")  # the store may be busy on a machine that is; the page asks again
    page = see(site.at("logs", order="key"))
    region = page.get_by_role("region", name="Partitions of logs")
    rows = page.locator("[role=row][data-key]")
    expect(rows.first).to_have_attribute("data-key", "logs/2026/11/21/part-00000.json.gz")
    most = 0
    last = page.locator(f"[role=row][aria-rowindex='{partition_count() + 1}']")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while last.count() == 0:
        assert time.monotonic() < deadline, "the last row never came"
        region.evaluate("element => element.scrollTop = element.scrollHeight")
        page.wait_for_timeout(200)
        most = max(most, page.evaluate("document.getElementsByTagName('*').length"))

    expect(last).to_have_attribute("data-key", f"logs/2026/11/21/part-{partition_count() - 1:05d}.json.gz")
    assert most < 4000, f"{most} elements for {partition_count()} partitions"
    assert page.get_by_role("table").get_attribute("aria-rowcount") == str(partition_count() + 1)


@pytest.mark.only_deep(daily=False)  # it takes the API server for itself
def test_fifty_tabs_leave_airflow_responsive(site: Site, see: OpenPage) -> None:
    page = see("/")
    go(page, site.at("logs"))
    expect(page.locator("[role=row][data-key]").first).to_be_visible()
    # What a tab asks again and again: all that it shows, in one request.
    together = page.wait_for_event("request", lambda request: "/coordination/together?" in request.url)
    parts = parse_qs(urlsplit(together.url).query)["path"]
    assert {re.sub(r".*/|\?.*", "", part) for part in parts} >= {"partitions", "summary"}
    headers = {"Authorization": f"Bearer {site.tokens['op']}"}
    many = httpx.Limits(max_connections=TABS + 1)
    with (
        httpx.Client(base_url=site.airflow.url, headers=headers, trust_env=False, timeout=30, limits=many) as client,
        ThreadPoolExecutor(TABS) as pool,
    ):
        until = time.monotonic() + SECONDS

        def tab() -> list[int]:
            """Ask as a page does: again and again, and until each question is answered if the store was busy."""
            answers: list[int] = []
            open_parts = set(parts)
            while open_parts or time.monotonic() < until:
                answer = client.get(together.url)
                assert answer.status_code == httpx.codes.OK
                statuses = [each["status"] for each in answer.json()]
                answers += statuses
                busy = httpx.codes.SERVICE_UNAVAILABLE
                open_parts -= {part for part, status in zip(parts, statuses, strict=True) if status != busy}
                time.sleep(2)
            return answers

        tabs = [pool.submit(tab) for _ in range(TABS)]
        airflow = []
        while not all(tab.done() for tab in tabs):
            airflow.append(client.get("/api/v2/dags").status_code)
            time.sleep(0.05)
        answered = [status for tab in tabs for status in tab.result()]

    assert set(answered) <= {200, 503}
    assert answered.count(200) >= TABS * len(parts)
    assert set(airflow) == {200}
