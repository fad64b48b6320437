"""The acknowledgment set as a value: owed and released handles, and its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_coordination.coordination.acknowledgment import (
    MAX_NAME_CHARACTERS,
    MAX_REASON_CHARACTERS,
    MAX_REFERENCES,
    AcknowledgmentSet,
    AcknowledgmentState,
    Release,
    ReleaseEffect,
    item_of,
    run_name,
    set_of_item,
)
from airflow_provider_coordination.coordination.errors import AcknowledgmentError, ConfigurationError, ProgressError
from airflow_provider_coordination.coordination.partition import PartitionStatus, first_version

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TIMEOUT = timedelta(minutes=10)
PENDING, ACKNOWLEDGED, REJECTED = (
    AcknowledgmentState.PENDING,
    AcknowledgmentState.ACKNOWLEDGED,
    AcknowledgmentState.REJECTED,
)


def a_set(*handles: str, complete: bool = True, **changes: Any) -> AcknowledgmentSet:
    made = AcknowledgmentSet(
        set_id="b1.0000",
        partition_key="p",
        batch_id="b1",
        created_at=NOW,
        timeout=TIMEOUT,
        expires_at=NOW + TIMEOUT,
    )
    for handle in handles:
        made = made.add(handle)
    return replace(made.completed(NOW) if complete else made, **changes)


def released(owed: AcknowledgmentSet, *handles: str, at: datetime = NOW) -> AcknowledgmentSet:
    for handle in handles:
        owed, _ = owed.release(handle, positive=True, release_id=f"{handle} {len(owed.releases)}", at=at)
    return owed


def test_set_is_acknowledged_after_all_positive_releases() -> None:
    owed = a_set("main", "copy")
    assert released(owed, "main").state is PENDING
    done = released(owed, "main", "copy", at=NOW + timedelta(seconds=5))
    assert (done.state, done.ended_at, done.owed) == (ACKNOWLEDGED, NOW + timedelta(seconds=5), 0)


def test_handle_owing_several_references_releases_each() -> None:
    owed = a_set("main").acquire("main", 2)
    assert (owed.owed, owed.added) == (3, 3)
    assert released(owed, "main", "main").state is PENDING
    assert released(owed, "main", "main", "main").state is ACKNOWLEDGED


def test_first_negative_release_rejects_with_handle_and_reason() -> None:
    owed = a_set("main", "copy")
    rejected, effect = owed.release("copy", positive=False, release_id="r", reason="disk full", at=NOW)
    assert (rejected.state, effect, rejected.reason) == (REJECTED, ReleaseEffect.RELEASED, "copy: disk full")
    assert rejected.ended_at == NOW


@pytest.mark.parametrize("positive", [True, False])
def test_release_after_the_end_is_late_and_changes_nothing(positive: bool) -> None:
    for ended in (
        released(a_set("main", "copy"), "main", "copy"),
        a_set("main").ended(AcknowledgmentState.EXPIRED, NOW),
        a_set("main").ended(AcknowledgmentState.CANCELLED, NOW),
    ):
        assert ended.release("main", positive=positive, release_id="late", reason="late", at=NOW) == (
            ended,
            ReleaseEffect.LATE,
        )


def test_repeated_release_changes_nothing_before_and_after_the_end() -> None:
    once, _ = a_set("main", "copy").release("main", positive=True, release_id="r", at=NOW)
    assert once.release("main", positive=True, release_id="r", at=NOW) == (once, ReleaseEffect.DUPLICATE)
    done = released(once, "copy")
    assert done.release("main", positive=True, release_id="r", at=NOW) == (done, ReleaseEffect.DUPLICATE)


def test_repeated_rejection_is_not_late() -> None:
    rejected, _ = a_set("main").release("main", positive=False, release_id="r", reason="no", at=NOW)
    again = rejected.release("main", positive=False, release_id="r", reason="no, once more", at=NOW)
    assert again == (rejected, ReleaseEffect.DUPLICATE)


@pytest.mark.parametrize(("handle", "positive"), [("copy", True), ("main", False)])
def test_reused_release_id_is_refused(handle: str, positive: bool) -> None:
    once, _ = a_set("main", "copy").release("main", positive=True, release_id="r", at=NOW)
    with pytest.raises(AcknowledgmentError, match="release id 'r' was used before, for a positive release of 'main'"):
        once.release(handle, positive=positive, release_id="r", reason="no", at=NOW)


def test_fully_released_handle_cannot_be_released() -> None:
    once, _ = a_set("main", "copy").release("main", positive=True, release_id="r", at=NOW)
    for positive in (True, False):
        with pytest.raises(AcknowledgmentError, match="handle 'main' owes nothing more"):
            once.release("main", positive=positive, release_id="another", reason="no", at=NOW)


def test_unknown_handle_is_refused_by_name_after_the_end_too() -> None:
    for owed in (a_set("main", "copy"), released(a_set("main", "copy"), "main", "copy")):
        with pytest.raises(AcknowledgmentError, match="has no handle 'other'; its handles are 'main', 'copy'"):
            owed.release("other", positive=True, release_id="r", at=NOW)
    with pytest.raises(AcknowledgmentError, match="its handles are none"):
        a_set(complete=False).acquire("main")


@pytest.mark.parametrize("reason", [None, "", " \n"])
def test_negative_release_needs_a_reason(reason: str | None) -> None:
    with pytest.raises(AcknowledgmentError, match="a negative release of 'main' needs a reason; give one"):
        a_set("main").release("main", positive=False, release_id="r", reason=reason, at=NOW)


def test_long_reason_is_truncated() -> None:
    rejected, _ = a_set("main").release("main", positive=False, release_id="r", reason="x" * 100_000, at=NOW)
    assert rejected.reason is not None and len(rejected.reason) == MAX_REASON_CHARACTERS


@pytest.mark.parametrize("name", ["", "x" * (MAX_NAME_CHARACTERS + 1), "a\nb", "a\0b", "\ud800"])
def test_unprintable_or_long_names_are_refused(name: str) -> None:
    with pytest.raises(AcknowledgmentError, match="is not usable: give 1 to 128 printable characters"):
        a_set(complete=False).add(name)
    with pytest.raises(AcknowledgmentError, match="is not usable: give 1 to 128 printable characters"):
        a_set("main").release("main", positive=True, release_id=name, at=NOW)


def test_refusal_is_a_configuration_error() -> None:
    assert issubclass(AcknowledgmentError, ConfigurationError)


# Completion


def test_incomplete_set_survives_its_last_release() -> None:
    owed = released(a_set("main", complete=False), "main")
    assert (owed.state, owed.owed) == (PENDING, 0)
    assert owed.completed(NOW + TIMEOUT).ended_at == NOW + TIMEOUT
    assert released(owed.add("copy"), "copy").completed(NOW).state is ACKNOWLEDGED


def test_empty_set_is_acknowledged_on_completion() -> None:
    assert a_set(complete=False).state is PENDING
    assert a_set().state is ACKNOWLEDGED


def test_completing_again_changes_nothing() -> None:
    for owed in (a_set("main"), a_set(), a_set("main").ended(AcknowledgmentState.EXPIRED, NOW)):
        assert owed.completed(NOW + TIMEOUT) == owed
    cancelled = a_set("main", complete=False).ended(AcknowledgmentState.CANCELLED, NOW)
    assert cancelled.completed(NOW) == cancelled


def test_complete_set_accepts_references_but_no_handles() -> None:
    with pytest.raises(AcknowledgmentError, match="it is complete; add handles before you complete it"):
        a_set("main").add("copy")
    assert a_set("main").acquire("main").references == {"main": 2}


def test_released_handle_may_owe_again_before_the_end() -> None:
    owed = released(a_set("main", "copy"), "main").acquire("main")
    assert released(owed, "copy").state is PENDING
    assert released(owed, "copy", "main").state is ACKNOWLEDGED


def test_handle_is_added_once() -> None:
    with pytest.raises(AcknowledgmentError, match="handle 'main' was added before; use acquire to add references"):
        a_set("main", complete=False).add("main")


@pytest.mark.parametrize("references", [0, -1])
def test_handle_owes_at_least_one_reference(references: int) -> None:
    with pytest.raises(AcknowledgmentError, match="must owe at least one reference"):
        a_set(complete=False).add("main", references)
    with pytest.raises(AcknowledgmentError, match="must owe at least one reference"):
        a_set("main").acquire("main", references)


def test_set_has_a_maximum_of_references_over_its_life() -> None:
    full = a_set(complete=False).add("main", MAX_REFERENCES)
    for act in (lambda: full.add("copy"), lambda: released(full, "main").acquire("main")):
        with pytest.raises(AcknowledgmentError, match="a set has at most 100 references; use smaller batches"):
            act()


# Time


def test_positive_release_extends_the_expiry() -> None:
    later = NOW + timedelta(minutes=9)
    assert released(a_set("main", "copy"), "main", at=later).expires_at == later + TIMEOUT


def test_expiry_is_never_shortened() -> None:
    owed = a_set("main", "copy").extended(NOW + timedelta(hours=2))
    assert owed.extended(NOW + timedelta(hours=1)) == owed
    assert released(owed, "main").expires_at == NOW + timedelta(hours=2)


def test_progress_is_the_fraction_of_released_references() -> None:
    owed = a_set(complete=False)
    assert (owed.progress, a_set().progress) == (0.0, 1.0)
    owed = owed.add("main", 3).add("copy").completed(NOW)
    assert owed.progress == 0.0
    assert released(owed, "main").progress == 0.25
    assert released(owed, "main", "main", "copy", "main").progress == 1.0


# As an item

names = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=MAX_NAME_CHARACTERS)
instants = st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(9000, 1, 1), timezones=st.just(UTC))
sets = st.builds(
    AcknowledgmentSet,
    set_id=names,
    partition_key=names,
    batch_id=names,
    created_at=instants,
    timeout=st.timedeltas(timedelta(microseconds=1), timedelta(days=3650)),
    expires_at=instants,
    references=st.dictionaries(names, st.integers(0, 100), max_size=3),
    added=st.integers(0, 100),
    complete=st.booleans(),
    releases=st.dictionaries(names, st.builds(Release, handle=names, positive=st.booleans()), max_size=3),
    sinks=st.lists(names, max_size=3).map(tuple),
    state=st.sampled_from(AcknowledgmentState),
    ended_at=instants,
    reason=st.none() | st.text(max_size=MAX_REASON_CHARACTERS),
    run=st.text(max_size=20),
    batch=st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5) | st.none(), max_size=3),
    version=st.integers(1, 2**62),
)


@given(sets)
def test_set_reads_back_as_stored(stored: AcknowledgmentSet) -> None:
    assert set_of_item(item_of(stored, "clicks|ACKNOWLEDGMENT")) == stored


def test_pending_sets_sort_by_expiry_and_ended_by_end() -> None:
    pending = item_of(a_set("main"), "clicks|ACKNOWLEDGMENT")
    assert (pending.status, pending.priority) == (PartitionStatus.UNASSIGNED, NOW + TIMEOUT)
    assert (pending.partition_key, pending.version) == ("b1.0000", first_version(NOW))
    ended = item_of(a_set("main").ended(AcknowledgmentState.EXPIRED, NOW), "clicks|ACKNOWLEDGMENT")
    assert (ended.status, ended.priority) == (PartitionStatus.COMPLETED, NOW)


STORED = item_of(released(a_set("main", "copy"), "main"), "clicks|ACKNOWLEDGMENT").progress


@pytest.mark.parametrize(
    "stored",
    [
        pytest.param({}, id="empty"),
        *(pytest.param({k: v for k, v in STORED.items() if k != name}, id=f"no {name}") for name in STORED),
        pytest.param({**STORED, "state": "DONE"}, id="no state"),
        pytest.param({**STORED, "expires_at": "tomorrow"}, id="no instant"),
        pytest.param({**STORED, "timeout_seconds": "long"}, id="no duration"),
        pytest.param({**STORED, "timeout_seconds": 1e300}, id="no duration that can be"),
        pytest.param({**STORED, "references": ["main"]}, id="no references"),
        pytest.param({**STORED, "references": {"main": None}}, id="no number"),
        pytest.param({**STORED, "releases": {"r": ["main"]}}, id="no release"),
        pytest.param({**STORED, "releases": {"r": 7}}, id="no pair"),
        pytest.param({**STORED, "sinks": None}, id="no sinks"),
    ],
)
def test_stored_item_that_is_no_set_is_refused(stored: Mapping[str, Any]) -> None:
    item = item_of(a_set("main"), "clicks|ACKNOWLEDGMENT").with_progress(stored)
    with pytest.raises(
        ProgressError, match=r"'b1.0000': the stored item cannot be read: .*; correct the item in the store, or delete"
    ):
        set_of_item(item)


def test_item_without_json_is_refused() -> None:
    item = replace(item_of(a_set("main"), "clicks|ACKNOWLEDGMENT"), progress={}, unreadable_progress="{")
    with pytest.raises(ProgressError, match="cannot be read"):
        set_of_item(item)


def test_run_of_a_set_names_dag_and_run() -> None:
    assert run_name("clicks", "manual__2026") == "clicks/manual__2026"
