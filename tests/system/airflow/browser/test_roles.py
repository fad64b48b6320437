"""What a viewer, a user, an op and an admin see and may press; each is asked by request too, as a script would."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from airflow_provider_coordination.coordination.partition import PartitionStatus
from tests.support.browser import Visits, go
from tests.support.site import AWAY, DEFAULT, EMPTY, Site
from tests.support.standalone import ROLES
from tests.system.airflow.browser.conftest import See
from tests.system.airflow.browser.test_actions import held

MAY, MAY_NOT = ("op", "admin"), ("viewer", "user")
READS = ("sources", "sources/orders/summary", "sources/orders/partitions", "sources/orders/timeline")


@pytest.mark.parametrize("role", ROLES)
def test_a_request_is_answered_to_those_who_may_see_the_connection_alone(role: str, site: Site) -> None:
    statuses = {site.ask("GET", f"/connections/{DEFAULT}/{what}", role).status_code for what in READS}
    named = {each["connection_id"] for each in site.ask("GET", "/connections", role).json()["connections"]}

    assert statuses == ({200} if role in MAY else {403})
    assert named >= {DEFAULT, EMPTY, AWAY} if role in MAY else named == set()


@pytest.mark.parametrize("role", ROLES)
def test_a_lease_is_ended_by_request_of_those_who_may_change_the_connection_alone(
    role: str, site: Site, source: Callable[..., str]
) -> None:
    name = source(a=held)
    seen = site.scenery.found(name, "a")
    body = {"partitions": [{"key": "a", "version": seen.version}], "reason": "it hangs"}

    answer = site.ask("POST", f"/connections/{DEFAULT}/sources/{name}/partitions/release", role, json=body)

    now = site.scenery.found(name, "a")
    if role in MAY:
        assert (answer.status_code, now.status) == (200, PartitionStatus.UNASSIGNED)
    else:
        assert (answer.status_code, now) == (403, seen)


@pytest.mark.parametrize("role", MAY_NOT)
def test_who_may_not_see_the_connection_is_told_whom_to_ask_and_nothing_else(
    role: str, site: Site, see: See, visits: Visits
) -> None:
    visits.excuse("^403 GET .*/coordination/")

    page = see(role=role)
    expect(page.get_by_role("heading", name="No coordination connection that you may see")).to_be_visible()
    shown = page.content()
    go(page, site.at("orders"))
    expect(page.get_by_role("alert")).to_contain_text("You may not see this")

    assert "state/parked" not in shown + page.content()
