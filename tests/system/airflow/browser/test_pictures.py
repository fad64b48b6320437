"""The pages beside the table: family tree, timeline, acknowledgments and workers."""

from __future__ import annotations

import re
import uuid

from playwright.sync_api import expect

from tests.support.browser import go
from tests.support.scenery import MINUTE
from tests.support.site import Site
from tests.system.airflow.browser.conftest import OpenPage, shard_count
from tests.system.airflow.browser.test_actions import confirm, last_word
from tests.system.airflow.browser.test_partitions import filters


def test_tree_of_a_thousand_shards_is_searchable_with_marked_holes(site: Site, see: OpenPage) -> None:
    page = see(site.at("telemetry", "shards"))
    tree = page.get_by_role("group", name=re.compile("^Family tree of telemetry"))
    expect(tree).to_be_visible()
    summary = tree.get_attribute("aria-label") or ""
    assert f"{shard_count() - 1:,} shards" in summary or f"{shard_count():,} shards" in summary
    assert re.search(r"[1-9]\d* splits?, [1-9]\d* merges?", summary)
    expect(page.get_by_text(re.compile("^1 hole: no shard lease covers"))).to_be_visible()
    expect(page.locator("[data-hole]")).to_be_in_viewport()
    assert page.locator("[data-shard]").count() < 500, "only what is in sight is drawn"

    page.get_by_label("Find a shard or an owner").fill("shardId-000000000400")
    found = page.locator("[data-shard='shardId-000000000400']")
    expect(found).to_be_visible()
    found.focus()
    expect(page.locator("[data-pointed]")).to_contain_text("of the hash keys")
    page.keyboard.press("ArrowLeft")
    parent = page.locator("[data-shard]:focus:not([data-shard='shardId-000000000400'])").get_attribute("data-shard")
    assert parent is not None
    page.keyboard.press("Enter")
    drawer = page.get_by_role("dialog")
    expect(drawer).to_contain_text(parent)
    expect(drawer.get_by_role("region", name="Shard")).to_contain_text("Children")
    expect(drawer.get_by_role("button", name="Close")).to_be_focused()
    page.keyboard.press("Escape")
    page.get_by_role("button", name=re.compile("^Fit")).click()
    expect(page.locator("[data-hole]")).to_have_count(1)

    go(page, site.at("customers", "shards"))
    expect(page.locator("[data-history='waiting']")).to_contain_text("2 of 4 partitions delivered, 1 held, 1 waiting")


def test_timeline_shows_owners_and_expired_leases(site: Site, see: OpenPage) -> None:
    page = see(site.at("night", "timeline", window="6h"))
    bars = page.locator("[data-bar]")
    expect(bars.first).to_be_visible()

    ends = {str(bar.get_attribute("data-end")) for bar in bars.all()}
    assert {"completed", "failed", "expired"} <= ends
    expired = page.locator("[data-bar][data-end='expired']").first
    expired.hover()
    expect(page.locator("[data-pointed]")).to_contain_text("expired")
    expired.click()
    expect(page.get_by_role("dialog").get_by_role("region", name="History")).to_contain_text("taken over")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="List", exact=True).click()
    expect(page.get_by_role("table", name="Owners of partitions over time")).to_contain_text("given up: its task ended")
    assert filters(page) == {"window": ["6h"], "as": ["list"]}


def test_expired_lease_without_takeover_ends_orange(site: Site, see: OpenPage) -> None:
    name = f"test-{uuid.uuid4().hex[:8]}"
    site.scenery.died(name, "dead")
    page = see(site.at(name, "timeline"))
    bar = page.locator("[data-bar]")
    expect(bar).to_have_attribute("data-end", "expired")
    assert bar.locator("[fill*='orange']").count() == 2, "its end, and the mark above it"
    drawn, lane = bar.locator("rect").first.bounding_box(), page.locator("[data-lane] svg").bounding_box()
    assert drawn is not None and lane is not None
    # 15 minutes of an hour, which ended 5 minutes ago; Airflow's clock continues during the test.
    assert 0.2 < drawn["width"] / lane["width"] < 0.3
    assert 0.8 < (drawn["x"] + drawn["width"] - lane["x"]) / lane["width"] < 0.93
    bar.hover()
    expect(page.locator("[data-pointed]")).to_contain_text(
        re.compile("expired.*15 min.*no owner has taken it over yet")
    )
    page.get_by_role("button", name="List", exact=True).click()
    expect(page.get_by_role("table", name="Owners of partitions over time")).to_contain_text("expired")


def test_pending_batches_show_handles_and_can_be_released(site: Site, see: OpenPage) -> None:
    name = f"test-{uuid.uuid4().hex[:8]}"
    site.scenery.awaiting(name, "first", "warehouse", "quality check", timeout=4 * MINUTE)
    site.scenery.awaiting(name, "second", "warehouse", timeout=90 * MINUTE)
    page = see(site.at(name, "acknowledgments"))
    table = page.get_by_role("table", name="Pending acknowledgment sets")
    rows = table.locator("[data-row]")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text(
        re.compile("first.*min.*left.*quality check.*warehouse|warehouse.*quality check")
    )

    rows.nth(0).get_by_role("button", name="Acknowledge…").click()
    page.get_by_role("alertdialog").get_by_label("Handle").select_option("quality check")
    confirm(page, "Acknowledge", "looked at it")
    expect(rows.nth(0)).not_to_contain_text("quality check")
    expect(rows).to_have_count(2)
    rows.filter(has_text="first").get_by_role("button", name="Acknowledge…").click()
    confirm(page, "Acknowledge", "and it is there")
    expect(rows).to_have_count(1)
    rows.nth(0).get_by_role("button", name="Reject…").click()
    confirm(page, "Reject", "half of it is missing")
    expect(page.get_by_role("heading", name="No pending acknowledgments")).to_be_visible()

    assert (site.scenery.found(name, "first").progress["checkpoint"], site.scenery.found(name, "first").attempts) == (
        "4",
        0,
    )
    rejected = site.scenery.found(name, "second")
    assert (rejected.progress["checkpoint"], rejected.attempts) == ("", 1)
    assert "half of it is missing" in str(rejected.last_error)
    site.airflow.until("the history has it", lambda: last_word(site, name)[0].startswith("failed"))


def test_acknowledgments_page_leads_to_the_partition(site: Site, see: OpenPage) -> None:
    page = see(site.at("orders", "acknowledgments"))
    page.get_by_role("link", name="Partition delivered/1.json.gz").click()

    sets = page.get_by_role("dialog", name="delivered/1.json.gz").get_by_role("region", name="Acknowledgment sets")
    expect(sets).to_contain_text("Missing handles: warehouse, quality check")
