"""Every action of the pages, once: it asks for a reason, takes effect, confirms, and records its user."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote

import pytest
from playwright.sync_api import Locator, Page, expect

from airflow_provider_coordination.coordination.history import History
from airflow_provider_coordination.coordination.partition import (
    PARKED_UNTIL,
    Partition,
    PartitionStatus,
    source_identifier,
)
from tests.support.scenery import DAMAGED, HOUR, owner, soon
from tests.support.site import Site
from tests.system.airflow.browser.conftest import OpenPage
from tests.system.airflow.browser.test_partitions import row

Change = Callable[[Partition], Partition]


def held(partition: Partition) -> Partition:
    return partition.acquired(owner(0), soon(HOUR))


def parked(partition: Partition) -> Partition:
    return partition.failed(DAMAGED).resting(PARKED_UNTIL)


def waiting(partition: Partition) -> Partition:
    return partition


def opened(page: Page, key: str) -> Locator:
    """Return the drawer of a partition, open."""
    row(page, key).get_by_role("button", name=key, exact=True).click()
    drawer = page.get_by_role("dialog", name=key)
    expect(drawer).to_be_visible()
    return drawer


def confirm(page: Page, verb: str, reason: str = "it hangs since midnight") -> Locator:
    """Give a reason, and press."""
    dialog = page.get_by_role("alertdialog")
    dialog.get_by_label("Reason").fill(reason)
    dialog.get_by_role("button", name=verb, exact=True).click()
    return dialog


def last_word(site: Site, source: str) -> tuple[str, str | None]:
    """Return why something changed the last time, and who ordered it."""
    history = History(site.scenery.store.inner, source_identifier(source, family="HISTORY"))
    last = history.since(soon(-HOUR))[-1]
    return last.reason, last.by


@pytest.mark.parametrize(
    ("action", "before", "status", "role"),
    [
        ("Release", held, PartitionStatus.UNASSIGNED, "op"),
        ("Reopen", parked, PartitionStatus.UNASSIGNED, "admin"),
        ("Park", held, PartitionStatus.CLOSED, "op"),
        ("Reset", parked, PartitionStatus.UNASSIGNED, "admin"),
    ],
)
def test_action_asks_for_a_reason_and_records_its_user(
    action: str,
    before: Change,
    status: PartitionStatus,
    role: str,
    site: Site,
    see: OpenPage,
    source: Callable[..., str],
) -> None:
    name = source(a=before)
    page = see(site.at(name), role=role)
    opened(page, "a").get_by_role("button", name=f"{action}…").click()
    dialog = page.get_by_role("alertdialog")
    dialog.get_by_role("button", name=action, exact=True).click()
    expect(dialog).to_contain_text("Enter a reason")
    assert site.scenery.found(name, "a").status is before(site.scenery.found(name, "a")).status

    confirm(page, action)

    expect(page.get_by_role("status").filter(has_text="1 partition.")).to_be_visible()
    after = site.scenery.found(name, "a")
    assert (after.status, after.is_parked, after.attempts) == (status, action == "Park", 0)
    expect(page.get_by_role("dialog", name="a").get_by_role("region", name="History")).to_contain_text(f"by {role}")
    reason, by = last_word(site, name)
    assert (by, "it hangs since midnight" in reason) == (role, True)
    entries = site.airflow.audit_log(f"coordination.{action.lower()}_partitions")
    assert name in str(entries)


def test_manual_action_is_never_drawn_as_a_failure(site: Site, see: OpenPage, source: Callable[..., str]) -> None:
    name = source(a=parked)
    page = see(site.at(name), role="admin")
    drawer = opened(page, "a")
    drawer.get_by_role("button", name="Reopen…").click()
    confirm(page, "Reopen", "the failed disk is replaced")

    entries = drawer.get_by_role("region", name="History").get_by_role("listitem")
    expect(entries.first).to_contain_text("reopened by hand: the failed disk is replaced")
    expect(entries.first).to_have_attribute("data-palette", "gray")
    expect(entries.filter(has_text=DAMAGED)).to_have_attribute("data-palette", "red")


def test_bulk_action_lists_its_failures(site: Site, see: OpenPage, source: Callable[..., str]) -> None:
    name = source(a=waiting, b=held, c=waiting, d=waiting)
    page = see(site.at(name))
    for key in "abc":
        page.get_by_role("checkbox", name=f"Select {key}", exact=True).check()
    page.get_by_role("toolbar").get_by_role("button", name="Park…").click()
    dialog = page.get_by_role("alertdialog")
    expect(dialog.get_by_role("list", name="Affected partitions").get_by_role("listitem")).to_have_count(3)
    site.scenery.change(name, "b", lambda p: p.completed(soon(-HOUR)))

    confirm(page, "Park")

    expect(dialog).to_contain_text("Parked 2 of 3 partitions")
    expect(dialog.locator("[data-outcome=stale]")).to_contain_text("b")
    dialog.get_by_role("button", name="Close").click()
    states = {key: site.scenery.found(name, key) for key in "abcd"}
    assert [key for key, partition in states.items() if partition.is_parked] == ["a", "c"]
    assert states["b"].status is PartitionStatus.COMPLETED


def test_click_on_a_changed_partition_changes_nothing(site: Site, see: OpenPage, source: Callable[..., str]) -> None:
    name = source(a=held)
    page = see(site.at(name))
    opened(page, "a").get_by_role("button", name="Release…").click()
    site.scenery.change(name, "a", lambda p: p.acquired(owner(7), soon(HOUR)))
    taken = site.scenery.found(name, "a")

    dialog = confirm(page, "Release")

    expect(dialog).to_contain_text("It has changed since you opened the dialog. It was left unchanged")
    assert site.scenery.found(name, "a") == taken
    dialog.get_by_role("button", name="Try again with its current state…").click()
    confirm(page, "Release")
    expect(page.get_by_role("alertdialog")).to_have_count(0)
    assert site.scenery.found(name, "a").owner is None


def test_renewal_does_not_block_an_action(site: Site, see: OpenPage, source: Callable[..., str]) -> None:
    name = source(a=held)
    page = see(site.at(name))
    opened(page, "a").get_by_role("button", name="Release…").click()
    site.scenery.change(name, "a", lambda p: p.renewed(soon(2 * HOUR)))
    renewed = site.scenery.found(name, "a").version
    for _ in range(2):  # what the drawer asked for next has been drawn when its next answer comes
        with page.expect_response(lambda each: "/partition?" in unquote(each.url) and str(renewed) in each.text()):
            pass

    confirm(page, "Release")

    expect(page.get_by_role("alertdialog")).to_have_count(0)
    assert site.scenery.found(name, "a").owner is None


def test_source_is_suspended_and_resumed(site: Site, see: OpenPage, source: Callable[..., str]) -> None:
    name = source(a=waiting)
    coordinator = site.scenery.worker(name)
    page = see(site.at(name))
    page.get_by_role("button", name="Suspend…").click()
    confirm(page, "Suspend", "the warehouse is full")
    expect(page.locator("[data-suspended]")).to_contain_text("by op: the warehouse is full")
    assert coordinator.leases.acquire(1) == []

    page.get_by_role("button", name="Resume…").click()
    confirm(page, "Resume", "emptied")
    expect(page.locator("[data-suspended]")).to_have_count(0)
    again = site.scenery.worker(name)
    assert [p.partition_key for p in again.leases.acquire(1)] == ["a"]
