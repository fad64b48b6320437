"""A failing sink appears with name, kind, time and reason, on the overview and its source."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.support.browser import Theme, findings, go
from tests.support.scenery import DOWN
from tests.support.site import DEFAULT, Site
from tests.system.airflow.browser.conftest import OpenPage
from tests.system.airflow.browser.test_access import OURS, settled


@pytest.fixture
def without_sink(site: Site) -> str:
    """A source of which one of three sinks has taken nothing for some minutes."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    site.scenery.without_sink(name)
    return name


def test_unavailable_sink_is_an_alarm_leading_to_all_sinks(without_sink: str, site: Site, see: OpenPage) -> None:
    page = see(site.overview(DEFAULT))
    card = page.get_by_role("article", name=without_sink, exact=True)
    alarm = re.compile(
        r"sink 'warehouse' \(sql\) has been unavailable for \d+ min, 3 batches wait\. .*Last error: " + DOWN,
        re.IGNORECASE,
    )
    card.get_by_role("link", name=alarm).click()

    expect(page.locator("[data-alarm]").first).to_contain_text(alarm)
    sinks = page.get_by_role("region", name="Sinks").locator("[data-row]")
    expect(sinks).to_have_count(3)
    down, calls = (sinks.and_(page.locator(f"[data-row={name}]")) for name in ("warehouse", "calls"))
    expect(down).to_contain_text(re.compile(r"sql\s*exactly once\s*Unavailable\s*\d+ min.*ago\s*3"))
    expect(down.get_by_title(DOWN)).to_be_visible()
    expect(calls).to_contain_text(re.compile(r"foreach_batch\s*at least once\s*Available"))


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.only_deep)])
@pytest.mark.parametrize("width", [1280, 390])
def test_sinks_are_readable_on_any_screen(
    theme: Theme, width: int, without_sink: str, site: Site, see: OpenPage, axe: Path
) -> None:
    page = see("/", theme=theme, width=width)
    go(page, site.at(without_sink, "acknowledgments"))
    settled(page)

    expect(page.get_by_text("warehouse", exact=True)).to_be_visible()
    assert page.locator(OURS).evaluate("element => element.scrollWidth - element.clientWidth") <= 0
    assert not findings(page, axe, within=OURS)
