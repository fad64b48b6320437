"""The commands that let another DAG read a source, or deliver it elsewhere."""

from __future__ import annotations

import pytest

from airflow_provider_coordination.coordination.source_claim import DeliveryClaim, SourceClaim, claim, claimed
from tests.cli.conftest import Clicks, Shell


@pytest.fixture
def claimed_clicks(clicks: Clicks) -> Clicks:
    mine = SourceClaim(dag_id="hourly", task_id="sync", claimed_at=clicks.clock.now(), kind="kinesis")
    claim(clicks.a.view, mine)
    return clicks


@pytest.fixture
def delivered_clicks(claimed_clicks: Clicks) -> Clicks:
    now = claimed_clicks.clock.now()
    sinks = {"main": "/lake", "copy": "/copy"}
    claim(claimed_clicks.a.view, DeliveryClaim(dag_id="other", task_id="ingest", claimed_at=now, sinks=sinks))
    return claimed_clicks


def test_unclaim_names_and_removes_both_claims(shell: Shell, delivered_clicks: Clicks) -> None:
    ended = shell("unclaim", "clicks", answer="y\n")
    assert [claimed(delivered_clicks.a.view, key) for key in (SourceClaim.KEY, DeliveryClaim.KEY)] == [None, None]
    assert ended.out.endswith("and was delivered by DAG other to /lake, /copy since 2026-01-01T00:00:00Z\n")
    assert "clicks was delivered by DAG other to /lake, /copy" in ended.err


def test_delivery_claim_alone_can_be_removed(shell: Shell, delivered_clicks: Clicks) -> None:
    item = claimed(delivered_clicks.a.view)
    assert item is not None
    delivered_clicks.store.delete(item)
    [record] = shell("unclaim", "clicks", "--yes", "--json").records
    assert record["read_by"] is None and record["delivered_by"]["sinks"] == {"main": "/lake", "copy": "/copy"}
    assert claimed(delivered_clicks.a.view, DeliveryClaim.KEY) is None


def test_claim_is_removed_after_confirmation(shell: Shell, claimed_clicks: Clicks) -> None:
    ended = shell("unclaim", "clicks", answer="y\n")
    assert (ended.exit_code, claimed(claimed_clicks.a.view)) == (0, None)
    assert ended.out.startswith("unclaimed clicks, which was claimed by DAG hourly as kinesis at ")
    assert "clicks was claimed by DAG hourly" in ended.err and "Unclaim clicks?" in ended.err


@pytest.mark.parametrize(("answer", "exit_code"), [("n\n", 1), (None, 2)])
def test_declined_unclaim_changes_nothing(
    shell: Shell, claimed_clicks: Clicks, answer: str | None, exit_code: int
) -> None:
    assert shell("unclaim", "clicks", answer=answer).exit_code == exit_code
    assert claimed(claimed_clicks.a.view) is not None


def test_json_output_contains_the_removed_claim(shell: Shell, claimed_clicks: Clicks) -> None:
    [record] = shell("unclaim", "clicks", "--yes", "--json").records
    assert (record["source"], record["read_by"]["dag_id"], record["read_by"]["kind"]) == ("clicks", "hourly", "kinesis")
    assert record["delivered_by"] is None


def test_unclaimed_source_is_no_error(shell: Shell, clicks: Clicks) -> None:
    ended = shell("unclaim", "clicks", "--yes")
    assert (ended.exit_code, ended.out) == (0, "")
    assert "clicks is not claimed by a DAG." in ended.err


def test_unreadable_claim_can_be_removed(shell: Shell, claimed_clicks: Clicks) -> None:
    item = claimed(claimed_clicks.a.view)
    assert item is not None
    claimed_clicks.store.transact(update=[item.with_progress({"from": "the future"})])
    assert "claimed in a format that this version cannot read" in shell("unclaim", "clicks", "--yes").out
    assert claimed(claimed_clicks.a.view) is None
