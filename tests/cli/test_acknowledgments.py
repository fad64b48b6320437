"""The commands about acknowledgment sets."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentState
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.partition import PartitionStatus
from tests.cli.conftest import Clicks, Shell
from tests.support.delivered import delivered, state, the_set

ACKNOWLEDGED, CANCELLED, PENDING, REJECTED = (
    AcknowledgmentState[name] for name in ("ACKNOWLEDGED", "CANCELLED", "PENDING", "REJECTED")
)


def test_pending_sets_are_listed_with_owed_handles(shell: Shell, clicks: Clicks) -> None:
    [first] = delivered(clicks.a, "a", handles=["check", "load", "load"], timeout=timedelta(minutes=10))
    [second] = delivered(clicks.a, "b", run="dag/other")
    ended = shell("acknowledgments", "clicks")
    assert ended.exit_code == 0
    assert ended.out.splitlines()[0].split("  ")[0] == "set"
    assert [" ".join(line.split()) for line in ended.out.splitlines()[1:]] == [
        f"{first} PENDING in 10 min 1/4 check, load 2 dag/run",
        f"{second} PENDING in 60 min 1/2 downstream dag/other",
    ]


def test_overdue_set_is_shown_as_overdue(shell: Shell, clicks: Clicks) -> None:
    delivered(clicks.a, "a", timeout=timedelta(seconds=10))
    clicks.clock.advance(40)
    assert "PENDING  30 s over" in shell("acknowledgments", "clicks").out


def test_ended_sets_are_listed_with_the_reason(shell: Shell, clicks: Clicks) -> None:
    pending, ended = delivered(clicks.a, "a", "b")
    shell("acknowledge", "clicks", ended, "--negative", "--reason", "a hole")
    clicks.clock.advance(30)
    lines = shell("acknowledgments", "clicks", "--ended").out.splitlines()[1:]
    assert [" ".join(line.split()) for line in lines] == [f"{ended} REJECTED 30 s ago 2/2 downstream: a hole dag/run"]
    listed = shell("acknowledgments", "clicks", "--all", "--json").records
    assert [record["set_id"] for record in listed] == [pending, ended]


def test_sets_are_found_by_run_and_batch(shell: Shell, clicks: Clicks) -> None:
    a, b = delivered(clicks.a, "a", "b")
    [c] = delivered(clicks.a, "c", run="dag/other")
    for options, expected in (
        (["--run", "dag/other"], [c]),
        (["--batch", "batch-of-b"], [b]),
        (["--limit", "2"], [a, b]),
        ([], [a, b, c]),
    ):
        records = shell("acknowledgments", "clicks", *options, "--json").records
        assert [record["set_id"] for record in records] == expected


def test_empty_list_is_reported(shell: Shell, clicks: Clicks) -> None:
    ended = shell("acknowledgments", "clicks")
    assert (ended.exit_code, ended.out, ended.err) == (0, "", "Nothing is pending.\n")
    assert shell("acknowledgments", "clicks", "--ended").err == "No such acknowledgment sets.\n"


def test_set_is_acknowledged(shell: Shell, clicks: Clicks) -> None:
    [waiting] = delivered(clicks.a, "a")
    ended = shell("acknowledge", "clicks", waiting)
    assert (ended.exit_code, ended.out, ended.err) == (0, f"released {waiting}, is ACKNOWLEDGED\n", "")
    assert clicks["a"].status is PartitionStatus.COMPLETED


def test_set_is_rejected_with_a_reason(shell: Shell, clicks: Clicks) -> None:
    [waiting] = delivered(clicks.a, "a")
    ended = shell("acknowledge", "clicks", waiting, "--negative", "--reason", "the load was refused")
    assert ended.out == f"released {waiting}, is REJECTED\n"
    assert the_set(clicks.a, waiting).reason == "downstream: the load was refused"
    assert (clicks["a"].status, clicks["a"].attempts) == (PartitionStatus.UNASSIGNED, 1)


def test_pending_set_names_the_handles_it_waits_for(shell: Shell, clicks: Clicks) -> None:
    [waiting] = delivered(clicks.a, "a", handles=["check", "load"])
    ended = shell("acknowledge", "clicks", waiting, "--handle", "check")
    assert ended.out == f"released {waiting}, is PENDING, waits for load, expires in 60 min\n"


def test_repeated_command_counts_once(shell: Shell, clicks: Clicks) -> None:
    [waiting] = delivered(clicks.a, "a", handles=["check", "check"])
    for release_id, effect in (("1", "released"), ("1", "duplicate"), ("2", "released"), ("2", "duplicate")):
        [record] = shell("acknowledge", "clicks", waiting, "--release-id", release_id, "--json").records
        assert record["effect"] == effect
    assert state(clicks.a, waiting) is ACKNOWLEDGED


def test_late_release_warns(shell: Shell, clicks: Clicks) -> None:
    [waiting] = delivered(clicks.a, "a")
    AcknowledgmentSets(clicks.a).cancel(waiting, "the sink was emptied")
    ended = shell("acknowledge", "clicks", waiting)
    assert (ended.exit_code, ended.out) == (0, f"too late, nothing changed: {waiting}, is CANCELLED\n")
    assert "warning: the acknowledgment set had already ended" in ended.err


@pytest.mark.parametrize(
    ("options", "exit_code", "message"),
    [
        (["--negative"], 2, "give the reason why the data did not arrive"),
        (["--negative", "--reason", " "], 2, "give the reason why the data did not arrive"),
        (["--reason", "x"], 2, "it requires --negative"),
        (["--handle", "nope"], 1, "has no handle 'nope'; its handles are 'main', 'downstream'"),
        (["--handle", "main"], 1, "handle 'main' is released by the delivering job"),
        (["--release-id", "x" * 129], 1, "give 1 to 128 printable characters"),
    ],
)
def test_invalid_release_is_refused_and_changes_nothing(
    shell: Shell, clicks: Clicks, options: list[str], exit_code: int, message: str
) -> None:
    [waiting] = delivered(clicks.a, "a")
    ended = shell("acknowledge", "clicks", waiting, *options)
    assert (ended.exit_code, ended.out) == (exit_code, "")
    assert message in ended.err
    assert the_set(clicks.a, waiting).owed == 1


@pytest.mark.parametrize(
    "command", [["acknowledge"], ["extend", "--seconds", "9"], ["cancel", "--reason", "x", "--yes"]]
)
def test_unknown_set_is_refused(shell: Shell, clicks: Clicks, command: list[str]) -> None:
    ended = shell(command[0], "clicks", "nope", *command[1:])
    assert (ended.exit_code, ended.out) == (1, "")
    assert "error: source 'clicks' has no acknowledgment set 'nope'" in ended.err


def test_extending_a_set_extends_its_partition(shell: Shell, clicks: Clicks) -> None:
    [waiting] = delivered(clicks.a, "a", timeout=timedelta(minutes=10))
    ended = shell("extend", "clicks", waiting, "--seconds", "7200")
    assert ended.out == f"extended {waiting}, is PENDING, waits for downstream, expires in 2 h\n"
    assert clicks["a"].ownership_timeout == clicks.clock.now() + timedelta(hours=2)


@pytest.mark.parametrize("seconds", ["0", "-1", "x", "1e300", "99999999999"])
def test_invalid_extension_is_wrong_usage(shell: Shell, clicks: Clicks, seconds: str) -> None:
    [waiting] = delivered(clicks.a, "a")
    assert shell("extend", "clicks", waiting, "--seconds", seconds).exit_code == 2


def test_set_is_cancelled_after_confirmation(shell: Shell, clicks: Clicks) -> None:
    [waiting] = delivered(clicks.a, "a")
    ended = shell("cancel", "clicks", waiting, "--reason", "the sink was emptied", answer="y\n")
    assert (ended.exit_code, ended.out) == (0, f"cancelled {waiting}, is CANCELLED\n")
    for text in (
        waiting,
        "in 60 min",
        "downstream",
        "will be delivered again",
        "Cancel this acknowledgment set of clicks?",
    ):
        assert text in ended.err
    assert the_set(clicks.a, waiting).reason == "the sink was emptied"
    assert (clicks["a"].status, clicks["a"].attempts) == (PartitionStatus.UNASSIGNED, 0)


def test_declined_cancellation_changes_nothing(shell: Shell, clicks: Clicks) -> None:
    [waiting] = delivered(clicks.a, "a")
    assert shell("cancel", "clicks", waiting, "--reason", "x", answer="n\n").exit_code == 1
    without = shell("cancel", "clicks", waiting, "--reason", "x")
    assert (without.exit_code, "give --yes" in without.err) == (2, True)
    assert shell("cancel", "clicks", waiting, "--yes").exit_code == 2
    assert shell("cancel", "clicks", waiting, "--reason", " ", "--yes").exit_code == 2
    assert state(clicks.a, waiting) is PENDING


def test_ended_set_is_neither_cancelled_nor_extended(shell: Shell, clicks: Clicks) -> None:
    [waiting] = delivered(clicks.a, "a")
    shell("acknowledge", "clicks", waiting)
    for command in (["cancel", "--reason", "x"], ["extend", "--seconds", "9"]):
        ended = shell(command[0], "clicks", waiting, *command[1:], answer="y\n")
        assert ended.exit_code == 1
        assert "has ended as ACKNOWLEDGED" in ended.err
    assert state(clicks.a, waiting) is ACKNOWLEDGED


def test_every_action_writes_the_set_as_json(shell: Shell, clicks: Clicks) -> None:
    a, b = delivered(clicks.a, "a", "b")
    [extended] = shell("extend", "clicks", a, "--seconds", "9", "--json").records
    [cancelled] = shell("cancel", "clicks", b, "--reason", "x", "--yes", "--json").records
    assert (extended["set_id"], extended["state"], cancelled["state"]) == (a, "PENDING", "CANCELLED")


def test_prefix_selects_another_installation(shell: Shell, clicks: Clicks) -> None:
    [waiting] = delivered(clicks.owner("host:b", prefix="staging"), "a")
    assert shell("acknowledge", "clicks", waiting).exit_code == 1
    assert shell("acknowledge", "clicks", waiting, "--prefix", "staging").exit_code == 0


def test_missing_table_is_not_created(shell: Shell, clicks: Clicks) -> None:
    for command in (["acknowledgments", "clicks"], ["acknowledge", "clicks", "s"]):
        ended = shell(*command, "--table", "mistyped")
        assert ended.exit_code == 1
        assert "if the store is new, run 'airflow-coordination init-store'" in ended.err


def test_names_cannot_control_the_terminal(shell: Shell, clicks: Clicks, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.CRITICAL):
        delivered(clicks.a, "a", run="dag/\x1b[2Jrun")
    assert "\x1b" not in shell("acknowledgments", "clicks").out
