"""The pages and actions of viewer, user, op and admin, in the browser and by request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, expect

from airflow_provider_coordination.coordination.partition import PartitionStatus
from tests.support.browser import Visits, Window, Windows, go
from tests.support.site import AWAY, DEFAULT, EMPTY, Site
from tests.support.standalone import ROLES
from tests.support.supervised import SupervisedSource
from tests.system.airflow.browser.conftest import OpenPage
from tests.system.airflow.browser.test_access import PAGES, settled, url_of
from tests.system.airflow.browser.test_actions import held

MAY, MAY_NOT = ("op", "admin"), ("viewer", "user")
READS = ("sources", "sources/orders/summary", "sources/orders/partitions", "sources/orders/timeline", "supervisors")
ACTIONS = {
    "supervisors/suspend": {},
    "sources/supervised/supervisor": {"spec": {"version": 1}},
    "sources/supervised/supervisor/suspend": {},
    "sources/supervised/supervisor/handover": {},
    "sources/supervised/supervisor/reset": {"to": "earliest"},
    "sources/supervised/supervisor/terminate": {},
    "sources/orders/suspend": {},
}


@pytest.fixture(scope="module", autouse=True)
def viewers_server(site: Site) -> Iterator[Callable[[], str]]:
    """An API server that lets viewers look; it starts while the first tests run."""
    with site.airflow.another_api_server(AIRFLOW__COORDINATION__VIEWERS_MAY_READ="True") as wait:
        yield wait


@pytest.fixture
def viewers_site(site: Site, viewers_server: Callable[[], str]) -> Site:
    """The same Airflow by that server."""
    return replace(site, url=viewers_server())


@pytest.mark.parametrize("role", ROLES)
def test_requests_need_read_access_to_the_connection(role: str, site: Site) -> None:
    statuses = {site.ask("GET", f"/connections/{DEFAULT}/{what}", role).status_code for what in READS}
    named = {each["connection_id"] for each in site.ask("GET", "/connections", role).json()["connections"]}

    assert statuses == ({200} if role in MAY else {403})
    assert named >= {DEFAULT, EMPTY, AWAY} if role in MAY else named == set()


@pytest.mark.parametrize("role", ROLES)
def test_lease_release_needs_write_access_to_the_connection(role: str, site: Site, source: Callable[..., str]) -> None:
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
def test_users_without_read_access_see_only_their_contact(
    role: str, site: Site, supervised: SupervisedSource, see: OpenPage, visits: Visits
) -> None:
    visits.excuse("^403 GET .*/coordination/")

    page = see(role=role)
    expect(page.get_by_role("heading", name="You may not view any coordination connection")).to_be_visible()
    shown = page.content()
    for source, name in (("orders", "partitions"), ("supervised", "supervisor")):
        go(page, site.at(source, name))
        expect(page.get_by_role("alert")).to_contain_text("No permission to view this")
        shown += page.content()

    assert "state/parked" not in shown and "ExecutorLostFailure" not in shown


def test_permitted_viewers_see_every_page_and_no_action(
    site: Site, supervised: SupervisedSource, browser: Browser, viewers_site: Site
) -> None:
    visits = Visits(Windows(browser, viewers_site.url))
    page = visits.open(Window(site.tokens["viewer"]), site.overview(DEFAULT), alone=True)
    for name in PAGES:
        go(page, url_of(site, name))
        settled(page)
        expect(page.get_by_text("read only").first).to_be_visible()
        assert page.locator("[data-action]").count() == 0, name
    go(page, site.at("supervised", "supervisor"))
    expect(page.get_by_role("table", name="Errors")).to_contain_text("ExecutorLostFailure")
    expect(page.locator("[data-read-only]")).to_contain_text("need the permission “can edit”")

    assert visits.close() == []


@pytest.mark.parametrize("path", ACTIONS)
def test_actions_of_permitted_viewers_are_refused(path: str, supervised: SupervisedSource, viewers_site: Site) -> None:
    before = supervised.store.current(), supervised.supervision(), supervised.view.suspensions.get()
    body = {"reason": "on call", **ACTIONS[path]}

    assert viewers_site.ask("GET", f"/connections/{DEFAULT}/supervisors", "viewer").status_code == 200
    assert viewers_site.ask("POST", f"/connections/{DEFAULT}/{path}", "viewer", json=body).status_code == 403
    assert (supervised.store.current(), supervised.supervision(), supervised.view.suspensions.get()) == before
