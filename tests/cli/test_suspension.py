"""The commands that suspend and resume a source, and how the other commands show it."""

from __future__ import annotations

import pytest

from airflow_provider_coordination.coordination.suspension import CACHE_SECONDS, Suspension
from tests.cli.conftest import Clicks, Shell

WHY = ("--reason", "the table is migrated")
SUSPENDED = "clicks is suspended by ann since 2026-01-01T00:00:00Z: the table is migrated\n"
RECORD = {"since": "2026-01-01T00:00:00.000000Z", "by": "ann", "reason": "the table is migrated"}


def found(clicks: Clicks) -> Suspension | None:
    return clicks.a.view.suspensions.get()


def test_source_is_suspended_after_confirmation(shell: Shell, clicks: Clicks) -> None:
    clicks.waiting("p")
    ended = shell("suspend", "clicks", *WHY, answer="y\n")
    assert (ended.exit_code, ended.out) == (0, SUSPENDED)
    assert "Jobs deliver what they have read" in ended.err and "Suspend clicks?" in ended.err
    said = Suspension(since=clicks.clock.now(), by="ann", reason="the table is migrated")
    assert found(clicks) == said and clicks.a.leases.acquire(1) == []


@pytest.mark.parametrize("answer", ["n\n", None], ids=["no", "nobody there"])
def test_declined_suspension_changes_nothing(shell: Shell, clicks: Clicks, answer: str | None) -> None:
    clicks.waiting("p")
    ended = shell("suspend", "clicks", *WHY, answer=answer)
    assert (ended.exit_code, ended.out) == (2 if answer is None else 1, "")
    assert answer is not None or "no terminal to confirm the suspension; give --yes" in ended.err
    assert found(clicks) is None


@pytest.mark.parametrize("why", [[], ["--reason", " "]], ids=["none", "empty"])
def test_suspension_needs_a_reason(shell: Shell, clicks: Clicks, why: list[str]) -> None:
    assert shell("suspend", "clicks", *why, "--yes").exit_code == 2
    assert found(clicks) is None


def test_unknown_source_is_refused_with_a_suggestion(shell: Shell, clicks: Clicks) -> None:
    clicks.waiting("p")
    ended = shell("suspend", "clicsk", *WHY, "--yes")
    assert (ended.exit_code, ended.out) == (1, "")
    assert "the store has no data of source 'clicsk'; did you mean 'clicks'? Check the name, or give" in ended.err
    assert clicks.owner("x", source="clicsk").view.suspensions.get() is None


def test_source_may_be_suspended_before_it_begins(shell: Shell, clicks: Clicks) -> None:
    assert shell("suspend", "clicks", *WHY, "--yes", "--new-source").exit_code == 0
    assert found(clicks) is not None


def test_suspended_source_stays_unchanged_without_a_prompt(shell: Shell, clicks: Clicks) -> None:
    clicks.waiting("p")
    shell("suspend", "clicks", *WHY, "--yes")
    clicks.clock.advance(60)
    ended = shell("suspend", "clicks", "--reason", "another")
    assert (ended.exit_code, ended.out, ended.err) == (
        0,
        SUSPENDED,
        "It was already suspended; nothing was changed.\n",
    )


def test_resumed_source_continues(shell: Shell, clicks: Clicks) -> None:
    clicks.waiting("p")
    shell("suspend", "clicks", *WHY, "--yes")
    assert clicks.a.leases.acquire(1) == []
    ended = shell("resume", "clicks", "--reason", "done", "--verbose")
    assert ended.out == f"resumed clicks, which was {SUSPENDED.removeprefix('clicks is ')}"
    assert "source resumed: source=clicks by=ann reason='done'" in ended.err
    clicks.clock.advance(CACHE_SECONDS)
    assert len(clicks.a.leases.acquire(1)) == 1
    again = shell("resume", "clicks")
    assert (again.exit_code, again.out, again.err) == (0, "", "clicks is not suspended.\n")


@pytest.mark.parametrize("since", ["2026-01-01T00:00:00.250000Z", "2026-01-01T01:00:00+01:00"])
def test_unseen_suspension_is_not_resumed(shell: Shell, clicks: Clicks, since: str) -> None:
    clicks.waiting("p")
    clicks.clock.advance(0.25)
    shell("suspend", "clicks", *WHY, "--yes")
    assert shell("resume", "clicks", "--since", "2025-12-31T00:00:00Z").exit_code == 1
    assert found(clicks) is not None
    assert shell("resume", "clicks", "--since", since).exit_code == 0
    assert found(clicks) is None


def test_yes_option_suspends_and_resumes(shell: Shell, clicks: Clicks) -> None:
    clicks.waiting("p")
    assert shell("suspend", "clicks", *WHY, "--yes").exit_code == 0
    assert shell("resume", "clicks", "--yes").exit_code == 0
    assert found(clicks) is None


@pytest.mark.parametrize("since", ["yesterday", "2026-01-01T00:00:00"])
def test_invalid_instant_resumes_nothing(shell: Shell, clicks: Clicks, since: str) -> None:
    clicks.waiting("p")
    shell("suspend", "clicks", *WHY, "--yes")
    ended = shell("resume", "clicks", "--since", since)
    assert ended.exit_code == 2 and "it must be an instant with a time zone" in ended.err
    assert found(clicks) is not None


def test_suspend_and_resume_write_json(shell: Shell, clicks: Clicks) -> None:
    clicks.waiting("p")
    assert shell("suspend", "clicks", *WHY, "--yes", "--json").records == [{"source": "clicks", "suspended": RECORD}]
    assert shell("resume", "clicks", "--json").records == [
        {"source": "clicks", "suspended": None, "was_suspended": RECORD}
    ]
    assert shell("resume", "clicks", "--json").records[0]["was_suspended"] is None


def test_sources_shows_suspended_ones(shell: Shell, clicks: Clicks) -> None:
    clicks.waiting("p")
    clicks.owner("x", source="orders").create_partitions({"p": {}})
    assert "suspended" not in shell("sources").out
    shell("suspend", "clicks", *WHY, "--yes")
    clicks.clock.advance(180)
    heading, of_clicks, of_orders, *_ = shell("sources").out.splitlines()
    assert heading.endswith("COMPLETED  suspended")
    assert of_clicks.endswith("3 min ago by ann: the table is migrated") and "ago" not in of_orders
    assert [record["suspended"] for record in shell("sources", "--json").records] == [RECORD, None]


def test_metrics_and_partitions_show_the_suspension(shell: Shell, clicks: Clicks) -> None:
    clicks.waiting("p")
    shell("suspend", "clicks", *WHY, "--yes")
    clicks.clock.advance(180)
    assert shell("metrics", "clicks").out.splitlines()[-1].split(maxsplit=1) == [
        "suspended",
        "3 min ago by ann: the table is migrated",
    ]
    assert shell("metrics", "clicks", "--json").records[0]["suspended"] == RECORD
    listed = shell("partitions", "clicks")
    assert listed.err == f"warning: source 'clicks' is {SUSPENDED.removeprefix('clicks is ')}"
    assert "suspended" not in listed.out
    assert len(shell("partitions", "clicks", "--json").records) == 1


def test_suspension_applies_to_one_installation(shell: Shell, clicks: Clicks) -> None:
    other = clicks.owner("x", prefix="other")
    other.create_partitions({"p": {}})
    clicks.waiting("p")
    shell("suspend", "clicks", *WHY, "--yes", "--prefix", "other")
    assert other.view.suspensions.get() is not None and found(clicks) is None
    suspended = {record["prefix"]: record["suspended"] for record in shell("sources", "--json").records}
    assert suspended == {"other": RECORD, None: None}


def test_reason_cannot_control_the_terminal(shell: Shell, clicks: Clicks) -> None:
    clicks.waiting("p")
    shell("suspend", "clicks", "--reason", "red\x1b[31m", "--yes")
    for command in (["sources"], ["metrics"], ["partitions", "clicks"], ["resume", "clicks"]):
        ended = shell(*command)
        assert "\x1b" not in ended.out + ended.err and "red\\x1b" in ended.out + ended.err
