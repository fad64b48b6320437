"""Supervisors: the list with those in trouble first, and everything about one, with its verbs."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Page, expect

from airflow_provider_coordination.sources.items import PartitionProgress
from tests.audit.test_dataset_audit import AuditedStream
from tests.support.browser import Visits, go
from tests.support.scenery import a_batch, owner
from tests.support.site import DEFAULT, Site
from tests.support.supervised import SHARD, SupervisedSource
from tests.system.airflow.browser.conftest import OpenPage
from tests.system.airflow.browser.test_actions import confirm
from tests.system.airflow.browser.test_partitions import filters

PAUSED_DAG = "jdbc_ingestion"
"""A DAG that Airflow knows, and that is paused."""

RECORD_DRAWING = """() => {
    window.drawn = {};
    for (const name of ["fillText", "setLineDash"]) {
        const draw = CanvasRenderingContext2D.prototype[name];
        CanvasRenderingContext2D.prototype[name] = function (what, ...where) {
            const chart = this.canvas.closest("[data-chart]")?.dataset.chart;
            (window.drawn[chart] ??= []).push(String(what));
            return draw.call(this, what, ...where);
        };
    }
}"""
"""Notes the texts on the axes of each chart, and the dashes of its lines."""

Supervise = Callable[..., SupervisedSource]


@pytest.fixture
def supervise(site: Site) -> Iterator[Supervise]:
    """Makes a supervised source of a test's own, which begins to be supervised."""
    with ExitStack() as stack:

        def make(**options: str) -> SupervisedSource:
            source = SupervisedSource(site.scenery.url, f"test-{uuid.uuid4().hex[:8]}", minutes=2, **options)
            stack.callback(source.close)
            source.submit_spec("supervise.start_delay", 0, by="ann", reason="clicks of the new shop")
            source.turn()
            source.minutes(2)
            return source

        yield make


@dataclass
class Shops:
    """A connection that a test has for itself; pages that were open before do not know it yet."""

    connection: str
    url: str
    sources: ExitStack

    def make(self, name: str) -> SupervisedSource:
        source = self.sources.enter_context(closing(SupervisedSource(self.url, name, minutes=2)))
        source.submit_spec("supervise.start_delay", 0, by="ann", reason="a new shop")
        source.turn()
        source.minutes(2)
        return source


@pytest.fixture
def shops(site: Site) -> Iterator[Shops]:
    """A connection that nobody has looked at: what it says is remembered for a while."""
    connection = f"shops_{uuid.uuid4().hex[:8]}"
    url = f"sqlite:///{site.folder}/{connection}.db"
    site.airflow.connect(connection, "coordination", extra={"store": "sql", "url": url})
    with ExitStack() as stack:
        stack.callback(site.airflow.disconnect, connection)
        yield Shops(connection, url, stack)


def state(page: Page) -> str:
    return str(page.locator("[data-supervisor]").get_attribute("data-supervisor"))


def test_list_begins_with_supervisors_in_trouble(
    site: Site, supervised: SupervisedSource, supervise: Supervise, see: OpenPage
) -> None:
    paused, lost = supervise(dag_id=PAUSED_DAG), supervise().losing_contact()
    page = see(site.overview(DEFAULT))
    page.get_by_role("button", name="Supervisors").click()
    table = page.get_by_role("table", name=f"Supervisors of {DEFAULT}")
    row = table.locator("[data-row]")
    expect(row.filter(has_text=lost.source)).to_contain_text("Lost contact")
    expect(row.filter(has_text=lost.source)).to_contain_text("ResourceNotFoundException")
    expect(row.filter(has_text=paused.source)).to_contain_text("its DAG is paused")

    names = [each.get_attribute("data-row") for each in row.all()]
    assert names.index(lost.source) < names.index(paused.source)
    assert filters(page)["show"] == ["supervisors"]
    row.filter(has_text=lost.source).get_by_role("link", name=lost.source).click()
    expect(page.get_by_role("heading", name=lost.source)).to_be_visible()
    expect(page.get_by_role("link", name=re.compile("The supervisor is in state LOST_CONTACT"))).to_be_visible()


def test_page_shows_a_whole_supervisor(site: Site, supervised: SupervisedSource, see: OpenPage) -> None:
    page = see(site.at("supervised", "supervisor"))

    figures = page.get_by_role("region", name="State")
    expect(figures).to_contain_text(re.compile(r"Jobs\s*2 of 2"))
    expect(figures).to_contain_text("version 2 by ben")
    expect(page.get_by_role("table", name="Jobs of the supervisor").locator("[data-row]")).to_have_count(2)
    shards = page.get_by_role("table", name="Lag of each partition").locator("[data-row]")
    expect(shards).to_have_count(4)
    changes = page.get_by_role("table", name="Changes in the number of jobs").locator("[data-row]")
    expect(changes.nth(1)).to_contain_text("2 → 3")
    expect(changes.nth(1)).to_contain_text("lag at least 6000 s in 41 % of the last 10 min: 1 job more")
    expect(changes.nth(2)).to_contain_text("stays 2")
    expect(page.get_by_role("table", name="Errors")).to_contain_text("ExecutorLostFailure")
    expect(page.get_by_role("table", name="Bad records").first).to_contain_text("MALFORMED_RECORD_IN_PARSING")
    shards.first.get_by_role("link").click()
    expect(page.get_by_role("dialog", name=re.compile("shardId"))).to_be_visible()


def test_history_is_a_keyboard_accessible_picture_and_a_list(
    site: Site, supervised: SupervisedSource, see: OpenPage
) -> None:
    page = see(site.at("supervised", "supervisor"))
    chart = page.get_by_role("group", name=re.compile("^Records delivered: [0-9,]+.s now, 8,000.s at most"))
    chart.focus()
    page.keyboard.press("End")
    caption = page.locator("[data-chart='Records delivered'] figcaption")
    expect(caption).to_have_text(re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d: [0-9,]+/s$"))
    last = caption.inner_text()
    page.keyboard.press("ArrowLeft")
    expect(caption).not_to_have_text(last)
    chart.blur()
    expect(caption).to_contain_text("at most")
    chart.hover()
    expect(caption).to_have_text(re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d: [0-9,]+/s$"))

    page.get_by_role("button", name="List", exact=True).click()
    rows = page.get_by_role("table", name="Over time").locator("[data-row]")
    expect(rows.first).to_contain_text("/s")
    assert rows.count() > 20
    assert filters(page) == {"as": ["list"]}


def test_spec_version_shows_author_reason_and_changes(site: Site, supervised: SupervisedSource, see: OpenPage) -> None:
    page = see(site.at("supervised", "supervisor"))
    spec = page.get_by_role("region", name="Spec", exact=True)
    versions = spec.get_by_role("list", name="Versions").get_by_role("button")
    expect(versions.first).to_contain_text("Version 2")
    expect(versions.first).to_contain_text("so that people know")
    changed = spec.get_by_role("table", name="Differences").locator("[data-row='context.description'] td")
    expect(changed).to_have_text(["context.description", '"every click"', '"every click of the new shop"'])
    versions.nth(1).click()
    expect(spec.get_by_role("region", name="Version 1 of the spec", exact=True)).to_contain_text('"start_delay": 0')
    assert filters(page) == {"version": ["1"]}


def test_version_shows_its_effective_and_submitted_spec(
    site: Site, supervised: SupervisedSource, see: OpenPage
) -> None:
    page = see(site.at("supervised", "supervisor"))
    written = page.get_by_role("region", name="Version 2 of the spec", exact=True)
    effective = page.get_by_role("region", name="Version 2 of the spec, with all defaults")
    expect(effective).to_contain_text('"completion_timeout"')
    expect(written).to_contain_text('"task_duration": "PT2H"')
    expect(written).not_to_contain_text('"completion_timeout"')


def test_address_names_two_compared_versions(site: Site, supervise: Supervise, see: OpenPage) -> None:
    source = supervise()
    source.submit_spec("supervise.task_count", 3, by="ben", reason="more")
    source.submit_spec("supervise.task_count", 5, by="ben", reason="still more")
    page = see(site.at(source.source, "supervisor"))
    row = page.get_by_role("table", name="Differences").locator("[data-row='supervise.task_count'] td")
    expect(row).to_have_text(["supervise.task_count", "3", "5"])
    page.get_by_label("Compare with version").select_option("version 1")

    expect(row).to_have_text(["supervise.task_count", "2", "5"])
    assert filters(page) == {"version": ["3"], "against": ["1"]}


def test_day_shows_its_gap_and_reasons_in_local_time(site: Site, see: OpenPage) -> None:
    with closing(SupervisedSource(site.scenery.url, "a day").hour().day()):
        page = see("/", time_zone="Asia/Tokyo")
        page.evaluate(RECORD_DRAWING)
        go(page, site.at("a day", "supervisor", window="24h"))
        lag = page.get_by_role("group", name=re.compile("^Longest lag of a partition: .* at most"))
        expect(lag).to_have_attribute("aria-label", re.compile("no measurements for 2 h"))
        expect(lag.locator("[data-gap]")).to_have_count(1)
        page.wait_for_function("window.drawn['Bad and dropped records']")
        drawn = page.evaluate("window.drawn")
        assert {"0 s", "10 min", "20 min"} <= set(drawn["Longest lag of a partition"])
        legend = page.locator("[data-chart='Bad and dropped records'] path[fill=none]")
        dashes = [line.get_attribute("stroke-dasharray") for line in legend.all()]
        assert len(set(dashes)) == 3, "not by colour alone"
        assert {each.replace(" ", ",") for each in dashes if each} <= set(drawn["Bad and dropped records"])
        changes = page.get_by_role("table", name="Changes in the number of jobs").locator("[data-row]")
        expect(changes.first).to_contain_text("there are no more than 2 unfinished partitions")
        lag.focus()
        page.keyboard.press("End")
        caption = page.locator("[data-chart='Longest lag of a partition'] figcaption")
        expect(caption).to_contain_text(re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d: "))
        [there] = re.findall(r"\d{4}-\d\d-\d\d \d\d", caption.inner_text())
        ahead = datetime.strptime(there, "%Y-%m-%d %H").replace(tzinfo=ZoneInfo("Asia/Tokyo")) - datetime.now(UTC)
        assert abs(ahead) < timedelta(hours=2)


def test_supervisor_with_a_paused_dag_is_suspended(site: Site, supervise: Supervise, see: OpenPage) -> None:
    source = supervise(dag_id=PAUSED_DAG)
    page = see(site.at(source.source, "supervisor"))

    expect(page.get_by_text("Unpause the DAG to resume")).to_be_visible()
    expect(page.get_by_role("link", name=f"The supervisor's DAG '{PAUSED_DAG}' is paused")).to_be_visible()
    assert state(page) == "DAG_PAUSED"


def test_origin_of_a_row_leads_to_partition_and_sinks(
    site: Site, supervise: Supervise, see: OpenPage, visits: Visits
) -> None:
    visits.excuse("^422 GET .*/trace")
    source, batch = supervise(), a_batch("a")
    read = PartitionProgress(kind="s3", items=tuple({"uri": str(each)} for each in range(4))).landing(batch)
    source.coordinator("job").create_partitions({"a": read.to_mapping()})
    page = see(site.at(source.source, "supervisor"))
    section = page.get_by_role("region", name="Origin of a row")
    section.get_by_label("_batch_id").fill("unknown")
    section.get_by_role("button", name="Show").click()
    expect(section).to_contain_text("neither a sink")
    section.get_by_label("_batch_id").fill(batch.batch_id)
    section.get_by_role("button", name="Show").click()
    expect(section).to_contain_text("48,213")
    expect(section).to_contain_text("Sink main")
    assert batch.batch_id in page.url, "the address can be sent to others"
    section.get_by_role("link", name="a", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text(batch.batch_id)


def test_landed_batch_leads_to_its_origin(site: Site, supervise: Supervise, see: OpenPage, tmp_path: Path) -> None:
    source, batch = supervise(), a_batch("a")
    read = PartitionProgress(kind="s3", items=tuple({"uri": str(each)} for each in range(4))).landing(batch)
    source.coordinator(owner(0)).create_partitions({"a": read.to_mapping()})
    page = see(site.at(source.source, partition="a"))
    page.get_by_role("dialog").get_by_role("link", name="Origin and sinks").click()
    section = page.get_by_role("region", name="Origin of a row")
    expect(section.locator("[data-origin]")).to_contain_text("48,213")
    expect(section.locator("[data-origin]")).to_be_in_viewport()
    expect(section.get_by_label("_batch_id")).to_have_value(batch.batch_id)
    expect(section.locator("[data-origin]")).to_contain_text("Not every sink has acknowledged the batch yet")
    page.screenshot(path=Path(os.environ.get("PICTURES", tmp_path)) / "origin.png")


def test_origin_of_a_delivered_batch_links_its_log(
    site: Site, supervise: Supervise, see: OpenPage, tmp_path: Path
) -> None:
    source, delivered = supervise(), AuditedStream(tmp_path / "lake")
    described = delivered.ledger()[1]
    for file in (delivered.folder / "_ledger").iterdir():
        text = file.read_text().replace(described["owner"], owner(3))
        file.write_text(text.replace('"clicks|PARTITION"', f'"{source.source}|PARTITION"'))
    source.submit_spec("writes", [{"parquet": {"path": str(delivered.folder)}}], by="ann", reason="its dataset")
    page = see(site.at(source.source, "supervisor", batch=described["batch"]["batch_id"]))
    origin = page.get_by_role("region", name="Origin of a row").locator("[data-origin]")
    expect(origin).to_contain_text(re.compile(r"Sink main\s*delivered\s*20 rows"))
    expect(origin).to_be_in_viewport()
    expect(origin.get_by_role("link", name=re.compile("log of"))).to_have_attribute(
        "href", re.compile("/tasks/ingest/")
    )
    page.screenshot(path=Path(os.environ.get("PICTURES", tmp_path)) / "origin-delivered.png")


def test_records_are_previewed_with_the_columns_of_the_spec(
    site: Site, supervise: Supervise, see: OpenPage, tmp_path: Path
) -> None:
    source, file = supervise(), tmp_path / "clicks.json"
    file.write_text('{"id": "click-7", "at": "2026-01-31T08:00:00Z"}\nno JSON\n')
    source.submit_spec("reads", {"s3": {"paths": str(file)}}, by="ann", reason="a file")
    page = see(site.at(source.source, "supervisor"))
    page.get_by_role("button", name="Preview records").click()
    preview = page.get_by_role("region", name="Preview of records")
    expect(preview.get_by_role("status")).to_have_text("2 records, 1 of them bad.")
    expect(preview).to_contain_text("these are the records that 'my_project.transforms:clean' receives")
    rows = preview.get_by_role("table", name="Records").locator("[data-row]")
    expect(rows.nth(0)).to_contain_text("click-7")
    expect(rows.nth(1)).to_contain_text("the payload is not one JSON object")
    preview.scroll_into_view_if_needed()
    page.screenshot(path=Path(os.environ.get("PICTURES", tmp_path)) / "preview.png")
    preview.get_by_role("button", name="Close the preview").click()
    expect(preview).to_have_count(0)


def test_preview_of_a_wrong_source_names_the_remedy(
    site: Site, supervise: Supervise, see: OpenPage, visits: Visits, tmp_path: Path
) -> None:
    visits.excuse("^422 GET .*/preview")
    source = supervise()
    source.submit_spec("reads", {"s3": {"paths": str(tmp_path / "gone")}}, by="ann", reason="a file")
    page = see(site.at(source.source, "supervisor"))
    page.get_by_role("button", name="Preview records").click()
    expect(page.get_by_role("region", name="Spec", exact=True).get_by_role("alert")).to_contain_text("check 'paths'")


def test_sources_without_a_supervisor_have_no_origins(site: Site, see: OpenPage) -> None:
    page = see(site.at("orders", partition="delivered/1.json.gz"))
    expect(page.get_by_role("dialog")).to_contain_text("Acknowledgment sets")
    expect(page.get_by_role("link", name="Origin and sinks")).to_have_count(0)


def test_spec_is_submitted_with_a_reason(site: Site, supervise: Supervise, see: OpenPage, visits: Visits) -> None:
    visits.excuse("^4.. POST .*/supervisor$")
    source = supervise()
    page = see(site.at(source.source, "supervisor"))
    expect(page.get_by_role("list", name="Versions").get_by_role("button")).to_have_count(1)
    page.get_by_role("button", name="Submit…").click()
    dialog = page.get_by_role("alertdialog")
    text = dialog.get_by_label("Spec, as JSON")
    dialog.get_by_label("Check the spec against the source first").uncheck()  # there is none
    written = json.loads(text.input_value())
    written["supervise"]["task_count"] = 0
    text.fill(json.dumps(written))
    dialog.get_by_label("Reason").fill("fewer jobs")
    dialog.get_by_role("button", name="Submit").click()
    expect(dialog.get_by_role("alert")).to_contain_text("'supervise.task_count' must be from 1")
    written["supervise"]["task_count"] = 3
    text.fill(json.dumps(written))
    dialog.get_by_role("button", name="Submit").click()

    expect(dialog).to_have_count(0)
    expect(page.get_by_role("status").filter(has_text=f"Version 2 of {source.source} is in effect")).to_be_visible()
    newest = page.get_by_role("list", name="Versions").get_by_role("button").first
    expect(newest).to_contain_text("Version 2")
    expect(newest).to_contain_text("by op")
    expect(newest).to_contain_text("fewer jobs")


def test_spec_made_from_an_older_version_is_refused(
    site: Site, supervise: Supervise, see: OpenPage, visits: Visits
) -> None:
    visits.excuse("^409 POST .*/supervisor$")
    source = supervise()
    page = see(site.at(source.source, "supervisor"))
    expect(page.get_by_role("list", name="Versions").get_by_role("button")).to_have_count(1)
    page.get_by_role("button", name="Submit…").click()
    page.get_by_label("Check the spec against the source first").uncheck()  # there is none
    source.submit_spec("supervise.task_count", 4, by="ben", reason="at the same time")
    confirm(page, "Submit", "mine")

    expect(page.get_by_role("alertdialog").get_by_role("alert")).to_contain_text("Nothing was changed")
    current = source.store.current()
    assert current is not None and current.by == "ben"


def test_handover_and_termination_ask_for_a_reason(site: Site, supervise: Supervise, see: OpenPage) -> None:
    source = supervise()
    page = see(site.at(source.source, "supervisor"))
    page.get_by_role("button", name="Hand over…").click()
    confirm(page, "Hand over", "new machines")
    expect(page.get_by_role("status").filter(has_text="is handing over")).to_be_visible()
    assert source.supervision().handover_requested_at is not None

    page.get_by_role("button", name="Terminate…").click()
    confirm(page, "Terminate", "the shop is closed")
    expect(page.locator("[data-supervisor='STOPPING']")).to_be_visible()
    expect(page.get_by_role("button", name="Hand over…")).to_have_count(0)
    expect(page.get_by_role("button", name="Submit…")).to_be_enabled()
    assert source.supervision().terminated_at is not None


def test_given_positions_alone_are_reset(site: Site, supervise: Supervise, see: OpenPage) -> None:
    source = supervise()
    page = see(site.at(source.source, "supervisor"))
    page.get_by_role("button", name="Reset…").click()
    dialog = page.get_by_role("alertdialog")
    dialog.get_by_label("Read from").select_option("positions")
    dialog.get_by_label("One line for each").fill(f"{SHARD.format(1)} earliest")
    before = {key: source.view.get(key) for key in source.stream.shards}
    expect(confirm(page, "Reset", "a bad transform")).to_have_count(0)

    changed = [key for key, partition in before.items() if source.view.get(key) != partition]
    assert changed == [SHARD.format(1)]


def test_source_without_a_supervisor_explains_its_creation(
    site: Site, see: OpenPage, visits: Visits, source: Callable[..., str]
) -> None:
    visits.excuse("^404 GET .*/supervisor(/history)?$")
    page = see(site.at(source(a=lambda p: p), "supervisor"))

    expect(page.get_by_role("heading", name="This source has no supervisor")).to_be_visible()
    expect(page.get_by_role("button", name="Submit…")).to_be_enabled()


def test_first_spec_of_a_source_is_submitted_from_the_list(
    site: Site, shops: Shops, see: OpenPage, visits: Visits
) -> None:
    visits.excuse("^4.. POST .*/supervisor$")
    page = see(f"{site.overview(shops.connection)}&show=supervisors", alone=True)
    expect(page.get_by_role("heading", name="No supervisors yet")).to_be_visible()
    page.get_by_role("button", name="Submit a spec…").click()
    dialog = page.get_by_role("alertdialog")
    text, alert = dialog.get_by_label("Spec, as JSON"), dialog.get_by_role("alert")
    written = json.loads(text.input_value())
    expect(confirm(page, "Submit", "a new shop").get_by_role("alert")).to_contain_text("The spec has no source")
    written |= {"source": "lamps", "reads": {"kinesis": {"streams": "lamps", "aws_conn_id": "aws_default"}}}
    written |= {"writes": [{"parquet": {"path": "/data/lake/lamps"}}], "schema": "id STRING"}
    for wrong, why in (({**written, "task_count": 2}, "task_count"), (written, "stream 'lamps'")):
        text.fill(json.dumps(wrong))
        dialog.get_by_role("button", name="Submit").click()
        expect(alert).to_contain_text(why)
        expect(alert).to_be_in_viewport()
        expect(text).to_have_attribute("aria-invalid", "true")
    text.fill(json.dumps({**written, "reads": {"kinesis": {"streams": "live", "aws_conn_id": "aws_default"}}}))
    dialog.get_by_role("button", name="Submit").click()

    expect(page.get_by_role("table").locator("[data-row]")).to_contain_text("lamps")


def test_bulk_verb_lists_its_failures_with_reasons(site: Site, shops: Shops, see: OpenPage) -> None:
    lamps, shoes = shops.make("lamps"), shops.make("shoes")
    shoes.view.suspensions.suspend("ann", "stocktaking")
    page = see(f"{site.overview(shops.connection)}&show=supervisors", alone=True)
    page.get_by_role("button", name="Suspend all…").click()
    outcomes = confirm(page, "Suspend all", "maintenance").get_by_role("status")
    expect(outcomes).to_contain_text("Done for 1 of 2 supervisors.")
    expect(outcomes.get_by_role("listitem")).to_contain_text("suspended by ann")
    page.get_by_role("alertdialog").get_by_role("button", name="Close").click()
    suspended = lamps.view.suspensions.get()
    assert suspended is not None and (suspended.by, suspended.reason) == ("op", "maintenance")

    page.get_by_role("button", name="Resume all…").click()
    expect(confirm(page, "Resume all", "it is over")).to_have_count(0)
    expect(page.get_by_role("status").filter(has_text="Done for 2 of 2 supervisors")).to_be_visible()
    page.get_by_role("button", name="Hand over all…").click()
    expect(confirm(page, "Hand over all", "new machines")).to_have_count(0)
    assert None not in [each.supervision().handover_requested_at for each in (lamps, shoes)]
    page.get_by_role("button", name="Terminate all…").click()
    expect(confirm(page, "Terminate all", "the shops are closed")).to_have_count(0)
    assert [each.supervision().terminated_at is None for each in (lamps, shoes)] == [False, False]
