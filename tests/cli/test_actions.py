"""The commands that change partitions."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_coordination.cli.commands import CommandContext
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.coordination.supplier import GLOBAL_STATE_KEY, Page
from airflow_provider_coordination.coordination.workers import new_owner
from airflow_provider_coordination.stores import StoreSettings, open_store
from tests.cli.conftest import Clicks, Shell


def test_lease_is_released_after_confirmation(shell: Shell, clicks: Clicks) -> None:
    clicks.leased("p")
    ended = shell("release", "clicks", "p", answer="y\n")
    assert (ended.exit_code, ended.out) == (0, "released p, was leased to host:a\n")
    assert clicks["p"].status is PartitionStatus.UNASSIGNED


def test_prompt_shows_partitions_and_consequence(shell: Shell, clicks: Clicks) -> None:
    clicks.leased("p")
    err = shell("release", "clicks", "p", answer="n\n").err
    for text in ("p ", "ASSIGNED", "60 s left", "host:a", "are refused", "Release this partition of clicks?"):
        assert text in err


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
@pytest.mark.parametrize("verb", ["release", "reset", "delete"])
def test_declined_action_changes_nothing(shell: Shell, clicks: Clicks, verb: str, answer: str) -> None:
    clicks.leased("p")
    before = clicks["p"]
    ended = shell(verb, "clicks", "p", answer=answer)
    assert (ended.exit_code, ended.out) == (1, "")
    assert clicks["p"] == before


@pytest.mark.parametrize("verb", ["release", "reset", "delete"])
def test_action_without_a_terminal_needs_yes(shell: Shell, clicks: Clicks, verb: str) -> None:
    clicks.leased("p")
    before = clicks["p"]
    ended = shell(verb, "clicks", "p")
    assert (ended.exit_code, ended.out) == (2, "")
    assert f"there is no terminal to confirm '{verb}' for this partition; give --yes" in ended.err
    assert clicks["p"] == before
    assert shell(verb, "clicks", "p", "--yes").exit_code == 0


def test_several_partitions_are_changed_and_each_is_named(shell: Shell, clicks: Clicks) -> None:
    clicks.leased("p", "q", "r")
    ended = shell("delete", "clicks", "p", "r", "p", "--yes")
    assert ended.out == "deleted p, was leased to host:a\ndeleted r, was leased to host:a\n"
    assert "q" in clicks and "p" not in clicks and "r" not in clicks


def test_unknown_key_stops_the_action_before_it_begins(shell: Shell, clicks: Clicks) -> None:
    clicks.leased("p")
    ended = shell("delete", "clicks", "p", "nope", "--yes")
    assert (ended.exit_code, ended.out) == (1, "")
    assert ended.err == "error: partition 'nope' of 'clicks|PARTITION' does not exist\n"
    assert "p" in clicks


def test_invalid_action_is_refused_before_the_prompt(shell: Shell, clicks: Clicks) -> None:
    clicks.leased("p")
    clicks.waiting("q")
    ended = shell("release", "clicks", "p", "q", answer="y\n")
    assert ended.exit_code == 1
    assert ended.err == "error: partition 'q' is UNASSIGNED: it has no owner, so there is nothing to release\n"
    assert clicks["p"].owner == "host:a"


def test_all_leases_of_an_owner_are_released(shell: Shell, clicks: Clicks) -> None:
    clicks.waiting("other")
    clicks.owner("host:b").leases.acquire(1)
    clicks.leased("p", "q")
    ended = shell("release", "clicks", "--owner", "host:a", "--yes", "--json")
    assert [record["partition_key"] for record in ended.records] == ["p", "q"]
    assert clicks["other"].owner == "host:b"


def test_supplier_lease_is_released_with_its_owner(shell: Shell, clicks: Clicks) -> None:
    released: list[str] = []

    def finding(state: Mapping[str, Any]) -> Iterator[Page]:
        yield Page({"p": {}})
        released.append(shell("release", "clicks", "--owner", "host:b", "--yes").err)
        released.append(shell("release", "clicks", "--owner", "host:a", "--yes").out)
        yield Page({"q": {}})

    assert clicks.owner("host:a").supply(finding) == ["p"], "its further writes are refused"
    assert released == ["No partitions to release.\n", f"released {GLOBAL_STATE_KEY}, was leased to host:a\n"]


def test_all_leases_of_a_run_are_released(shell: Shell, clicks: Clicks) -> None:
    run = "scheduled__2026-01-31T00:00:00+00:00"
    for number, task in enumerate(("ingest", "ingest", "other")):
        clicks.waiting(str(number))
        clicks.owner(new_owner("dag", run, task, 0, 1)).leases.acquire(1)
    asked = ("release", "clicks", "--dag-id", "dag", "--run-id", run, "--json", "--yes")
    assert [record["partition_key"] for record in shell(*asked, "--task-id", "ingest").records] == ["0", "1"]
    assert [record["partition_key"] for record in shell(*asked).records] == ["2"]
    assert shell(*asked).err == "No partitions to release.\n"


def test_expired_leases_are_released_unless_renewed(shell: Shell, clicks: Clicks) -> None:
    clicks.leased("p", "q")
    clicks.clock.advance(2)
    clicks.leased("s")  # it ran out a second ago, by a clock that may be wrong by two
    clicks.clock.advance(61)
    clicks.leased("r")

    def q_is_renewed() -> None:
        clicks.store.transact(update=[clicks["q"].renewed(clicks.clock.now() + timedelta(seconds=60))])

    ended = shell("release", "clicks", "--expired", answer="y\n", before_the_answer=q_is_renewed)

    assert (ended.exit_code, ended.out) == (1, "released p, was leased to host:a\n")
    assert "partition 'q': its lease runs until" in ended.err and "host:a renewed it" in ended.err
    assert [clicks[key].owner for key in "pqrs"] == [None, "host:a", "host:a", "host:a"]


@pytest.mark.parametrize(
    "args",
    [
        ["release"],
        ["release", "p", "--owner", "x"],
        ["release", "p", "--expired"],
        ["release", "--run-id", "x"],
        ["release", "--owner", "x", "--task-id", "x"],
        ["reopen"],
        ["reopen", "p", "--parked"],
        ["reset"],
        ["park", "--reason", "x"],
        ["park", "p"],
        ["park", "p", "--reason", " "],
        ["delete"],
    ],
)
def test_selection_must_be_given_exactly_once(shell: Shell, clicks: Clicks, args: list[str]) -> None:
    ended = shell(args[0], "clicks", *args[1:], "--yes")
    assert (ended.exit_code, ended.out) == (2, "")


def test_single_partition_is_reopened_without_a_prompt(shell: Shell, clicks: Clicks) -> None:
    clicks.parked("p")
    assert shell("reopen", "clicks", "p").out == "reopened p, was CLOSED\n"
    assert (clicks["p"].status, clicks["p"].attempts) == (PartitionStatus.UNASSIGNED, 0)


def test_all_parked_partitions_are_reopened_after_confirmation(shell: Shell, clicks: Clicks) -> None:
    clicks.parked(*(f"p{number:02}" for number in range(30)))
    assert shell("reopen", "clicks", "--parked").exit_code == 2
    ended = shell("reopen", "clicks", "--parked", answer="y\n")
    assert "… and 10 more" in ended.err and "Reopen these 30 partitions of clicks?" in ended.err
    assert len(ended.out.splitlines()) == 30
    assert shell("reopen", "clicks", "--parked").err == "No partitions to reopen.\n"


def test_reopening_a_completed_partition_points_to_reset(shell: Shell, clicks: Clicks) -> None:
    clicks.completed("p")
    ended = shell("reopen", "clicks", "p")
    assert ended.exit_code == 1
    assert "is COMPLETED" in ended.err and "use reset" in ended.err


def test_partition_taken_during_the_prompt_is_left_alone(shell: Shell, clicks: Clicks) -> None:
    clicks.leased("p", "q")

    def another_takes_p() -> None:
        clicks.store.transact(update=[clicks["p"].acquired("host:b", clicks["p"].priority)])

    ended = shell("release", "clicks", "p", "q", answer="y\n", before_the_answer=another_takes_p)
    assert ended.exit_code == 1
    assert ended.out == "released q, was leased to host:a\n"
    assert "it was ASSIGNED to host:a and is now ASSIGNED to host:b; check it again" in ended.err
    assert "error: 1 of 2 partitions could not be released" in ended.err


def test_init_store_can_be_repeated(shell: Shell, store_url: str) -> None:
    assert shell("init-store").out == "The store is ready: sqlite, table coordination_partition.\n"
    assert shell("init-store", "--json").records == [{"store": "sqlite", "table": "coordination_partition"}]
    assert open_store(StoreSettings.from_url(store_url)).source_identifiers() == []


def test_partition_is_parked_with_user_and_reason_and_reopened(shell: Shell, clicks: Clicks) -> None:
    clicks.leased("p")
    ended = shell("park", "clicks", "p", "--reason", "it is too hot", answer="y\n")
    assert (ended.exit_code, ended.out) == (0, "parked p, was leased to host:a\n")
    assert (
        "Stops all work on the partition until a user reopens it" in ended.err
        and "Park this partition of clicks?" in ended.err
    )
    assert clicks["p"].is_parked and clicks["p"].last_error == "parked by ann: it is too hot"
    assert "is already parked" in shell("park", "clicks", "p", "--reason", "again", "--yes").err
    assert shell("reopen", "clicks", "--parked", "--yes").out == "reopened p, was CLOSED\n"


@pytest.mark.parametrize(
    ("verb", "done"), [("release", "released"), ("reopen", "reopened"), ("reset", "reset"), ("delete", "deleted")]
)
def test_user_and_reason_are_logged(shell: Shell, clicks: Clicks, verb: str, done: str) -> None:
    (clicks.parked if verb == "reopen" else clicks.leased)("p")
    ended = shell(verb, "clicks", "p", "--reason", "it is fixed", "--yes", "--verbose")
    assert ended.exit_code == 0
    assert re.search(f"partition {done} by hand: .* by=ann reason='it is fixed'", ended.err)


def test_caller_is_the_user_of_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    assert CommandContext().user() == "ann"


def test_caller_without_a_name_is_known_by_uid(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)

    def nobody(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert CommandContext().user() == f"uid {os.getuid()}"


@pytest.mark.parametrize("verb", ["release", "reopen", "reset", "delete"])
def test_every_action_writes_the_partitions_as_json(shell: Shell, clicks: Clicks, verb: str) -> None:
    (clicks.parked if verb == "reopen" else clicks.leased)("p", "q")
    records = shell(verb, "clicks", "p", "q", "--json", "--yes").records
    assert [record["partition_key"] for record in records] == ["p", "q"]
    assert all(record["progress"] is not None and "version" in record for record in records)
