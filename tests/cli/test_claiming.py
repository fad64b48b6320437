"""Letting another DAG read a source."""

from __future__ import annotations

import pytest

from airflow_provider_coordination.coordination.source_claim import SourceClaim, claim, claimed
from tests.cli.conftest import Clicks, Shell


@pytest.fixture
def claimed_clicks(clicks: Clicks) -> Clicks:
    mine = SourceClaim(dag_id="hourly", task_id="sync", claimed_at=clicks.clock.now(), kind="kinesis")
    claim(clicks.a, mine)
    return clicks


def test_a_claim_is_gone_when_the_person_agrees(shell: Shell, claimed_clicks: Clicks) -> None:
    ended = shell("unclaim", "clicks", answer="y\n")
    assert (ended.exit_code, claimed(claimed_clicks.a)) == (0, None)
    assert ended.out.startswith("unclaimed clicks, which was claimed by DAG hourly as kinesis at ")
    assert "which was claimed by DAG hourly" in ended.err and "Unclaim clicks?" in ended.err


@pytest.mark.parametrize(("answer", "exit_code"), [("n\n", 1), (None, 2)])
def test_nothing_is_changed_unless_the_person_agrees(
    shell: Shell, claimed_clicks: Clicks, answer: str | None, exit_code: int
) -> None:
    assert shell("unclaim", "clicks", answer=answer).exit_code == exit_code
    assert claimed(claimed_clicks.a) is not None


def test_a_script_is_told_what_the_claim_was(shell: Shell, claimed_clicks: Clicks) -> None:
    [record] = shell("unclaim", "clicks", "--yes", "--json").records
    assert (record["source"], record["claim"]["dag_id"], record["claim"]["kind"]) == ("clicks", "hourly", "kinesis")


def test_a_source_that_nobody_claims_is_no_error(shell: Shell, clicks: Clicks) -> None:
    ended = shell("unclaim", "clicks", "--yes")
    assert (ended.exit_code, ended.out) == (0, "")
    assert "No DAG claims clicks." in ended.err


def test_a_claim_that_cannot_be_read_can_be_removed(shell: Shell, claimed_clicks: Clicks) -> None:
    item = claimed(claimed_clicks.a)
    assert item is not None
    claimed_clicks.store.transact(update=[item.with_progress({"from": "the future"})])
    assert "claimed in a form that this version does not know" in shell("unclaim", "clicks", "--yes").out
    assert claimed(claimed_clicks.a) is None
