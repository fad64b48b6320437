"""The comparison of a partition with the batches that a sink recorded, in tables of cases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from airflow_provider_coordination.audit.comparison import Comparison, ReadRange, epoch_name, joined
from airflow_provider_coordination.audit.report import AuditFinding, State, state_of
from airflow_provider_coordination.sources.items import ItemPosition
from airflow_provider_coordination.sources.kinds import kind_named
from airflow_provider_coordination.sources.landed import BATCHES_PER_EPOCH
from airflow_provider_coordination.spark.ledger import BatchFault, LedgerEntry, SinkContents

RESET = 1_790_000_000
SECOND_EPOCH = RESET * BATCHES_PER_EPOCH


def entry(number: int, start: int, end: int, **given: Any) -> LedgerEntry:
    """Return a batch of ten records."""
    known = {"batch_id": f"b{number}", "rows": 10, "fencing_token": 1, "source": "s", "partition_key": "p", **given}
    return LedgerEntry(ordinal=number, start=str(start), end=str(end), records=10, **known)


def read(checkpoint: int, ordinal: int, *, pending: int = 0, epoch: int = 0, **given: Any) -> ReadRange:
    return ReadRange(
        partition_key="p", checkpoint=str(checkpoint), epoch=epoch, ordinal=ordinal, pending=pending,
        **{"latest_ordinal": ordinal, **given},
    )  # fmt: skip


def comparison_with(contents: SinkContents) -> Comparison:
    return Comparison(
        source="s",
        sink="main",
        contents=contents,
        is_before=lambda a, b: int(a) < int(b),
        is_initial="0".__eq__,
        removed=[each.partition_key for each in contents.entries if each.landed_at == "before the cleanup"],
    )


def compared(
    entries: Sequence[LedgerEntry], known: ReadRange | None, **contents: Any
) -> list[tuple[State, str | None, str | None]]:
    given = SinkContents(location="lake", entries=entries, **contents)
    return [(each.state, each.after, each.until) for each in comparison_with(given).of("p", known, entries).findings]


THREE = [entry(1, 0, 10), entry(2, 10, 20), entry(3, 20, 30)]
GAP, OVERLAP, UNEXPLAINED = State.GAP, State.OVERLAP, State.UNEXPLAINED


@pytest.mark.parametrize(
    ("entries", "known", "expected"),
    [
        pytest.param(THREE, read(30, 3), [], id="complete"),
        pytest.param(THREE, read(20, 3, pending=1), [], id="delivered and not acknowledged"),
        pytest.param(THREE[:2], read(20, 3, pending=1), [], id="landed and not delivered"),
        pytest.param(THREE, read(20, 2, latest_ordinal=3), [], id="delivered while the sink was read"),
        pytest.param([], read(0, 0), [], id="nothing read"),
        pytest.param([], read(70, 0), [], id="imported progress"),
        pytest.param(THREE[1:], read(30, 3), [], id="a sink that was added later"),
        pytest.param([THREE[0], THREE[2]], read(30, 3), [(GAP, "10", "20")], id="missing batch"),
        pytest.param(THREE[:1], read(30, 3), [(GAP, "10", "30")], id="missing end"),
        pytest.param([], read(30, 3), [(GAP, None, "30")], id="everything missing"),
        pytest.param(THREE, read(40, 3), [(GAP, "30", "40")], id="checkpoint moved forward"),
        pytest.param(THREE, read(10, 3), [(OVERLAP, "10", "30")], id="checkpoint moved back"),
        pytest.param([*THREE, entry(4, 40, 50)], read(50, 4), [(GAP, "30", "40")], id="read on after a gap"),
        pytest.param([*THREE, entry(4, 20, 50)], read(50, 4), [(OVERLAP, "20", "30")], id="read back"),
        pytest.param(THREE, read(10, 1), [(UNEXPLAINED, "10", "30")], id="store of an older backup"),
        pytest.param(
            [*THREE, entry(3, 20, 25, batch_id="b3'")], read(25, 3), [(OVERLAP, "20", "25")], id="number used twice"
        ),
        pytest.param(THREE, None, [(UNEXPLAINED, "30", None)], id="no such partition"),
        pytest.param([entry(1, 0, 9, landed_at="before the cleanup")], None, [], id="removed after an empty end"),
        pytest.param([entry(1, 0, 9, is_last=True)], None, [], id="partition that was cleaned up"),
        pytest.param(
            [*THREE, entry(SECOND_EPOCH + 1, 10, 30)],
            read(30, SECOND_EPOCH + 1, epoch=RESET),
            [(OVERLAP, "10", "30")],
            id="reset back",
        ),
        pytest.param(
            [*THREE, entry(SECOND_EPOCH + 1, 40, 50)],
            read(50, SECOND_EPOCH + 1, epoch=RESET),
            [(GAP, "30", "40")],
            id="reset forward",
        ),
        pytest.param(THREE, read(10, 3, epoch=RESET), [(OVERLAP, "10", "30")], id="reset that nobody read yet"),
        pytest.param(THREE, read(10, 3, epoch=RESET, is_repairing=True), [], id="repair that nobody read yet"),
        pytest.param(THREE, read(5, 3, epoch=RESET, changed=True), [], id="reset during the audit"),
        pytest.param(
            THREE, read(45, SECOND_EPOCH + 2, epoch=RESET), [(GAP, "30", "45")], id="a whole epoch is missing"
        ),
    ],
)  # fmt: skip
def test_chain_of_batches_is_compared(
    entries: Sequence[LedgerEntry],
    known: ReadRange | None,
    expected: list[tuple[State, str | None, str | None]],
) -> None:
    assert compared(entries, known) == expected


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        ({"faults": {"b2": BatchFault("gone", is_missing=True)}}, [(GAP, "10", "20")]),
        ({"faults": {"b2": BatchFault("changed", is_missing=False)}}, [(UNEXPLAINED, "10", "20")]),
        ({"counted": {"b1": 10, "b2": 9, "b3": 10}}, [(GAP, "10", "20")]),
        ({"counted": {"b1": 10, "b2": 12, "b3": 10}}, [(OVERLAP, "10", "20")]),
        ({"counted": {"b1": 10}}, [(GAP, "10", "30")]),
        ({"counted": {"b1": 10}, "replaces_rows": True}, []),
        ({"counted": {"b1": 10, "b2": 10, "b3": 10}}, []),
    ],
)
def test_files_and_rows_of_batches_are_compared(
    contents: dict[str, Any], expected: list[tuple[State, str | None, str | None]]
) -> None:
    assert compared(THREE, read(30, 3), **contents) == expected


def test_faults_of_batches_under_way_do_not_count() -> None:
    faults = {"b3": BatchFault("gone", is_missing=True)}
    assert compared(THREE, read(20, 3, pending=1), faults=faults) == []


def test_gap_that_a_later_epoch_read_is_filled() -> None:
    missing = {"faults": {"b2": BatchFault("gone", is_missing=True)}}
    again = [*THREE, entry(SECOND_EPOCH + 1, 10, 15), entry(SECOND_EPOCH + 2, 15, 20)]
    assert compared(again, read(20, SECOND_EPOCH + 2, epoch=RESET), **missing) == []
    part = again[:-1]
    assert compared(part, read(15, SECOND_EPOCH + 1, epoch=RESET), **missing) == [(GAP, "10", "20")]


def test_dead_letters_have_no_chain() -> None:
    assert compared([THREE[0], THREE[2]], read(90, 9), is_partial=True) == []


def test_lost_data_is_explained_without_a_range() -> None:
    known = read(50, 4, lost=["(30, 40): it expired"])
    assert compared([*THREE, entry(4, 40, 50)], known) == [(GAP, None, None)]


def test_counts_are_of_what_is_there() -> None:
    left = [entry(1, 0, 10, rows=8, left_out={"schema": 2}), entry(2, 10, 20, rows=None)]
    contents = SinkContents(location="lake", entries=left)
    audit = comparison_with(contents).of("p", read(20, 2), left)
    assert (audit.batches, audit.records, audit.rows, audit.left_out) == (2, 20, None, {"schema": 2})


def test_explained_findings_leave_a_source_complete() -> None:
    found = [
        AuditFinding(state=State.GAP, sink="main", reason="", is_explained=True),
        AuditFinding(state=State.OVERLAP, sink="main", reason=""),
    ]
    assert state_of(found) is State.OVERLAP and state_of(found[:1]) is State.COMPLETE


def test_neighbouring_gaps_are_joined() -> None:
    gaps = [
        AuditFinding(state=State.GAP, sink="main", reason=f"batch {n}", after=str(n), until=str(n + 1), batches=1)
        for n in (1, 2, 3, 5)
    ]
    first, second = joined(gaps)
    assert (first.after, first.until, first.batches) == ("1", "4", 3) and second == gaps[3]
    assert first.reason == "batch 1, and the same of 2 batches after it"


def test_epochs_are_named_by_their_reset() -> None:
    assert epoch_name(RESET) == "the reset at 2026-09-21T14:13:20Z" and epoch_name(3) == "the start of epoch 3"


@pytest.mark.parametrize(
    ("kind", "one", "other", "is_before"),
    [
        ("kinesis", "9", "10", True),
        ("kinesis", "10", "9", False),
        ("kinesis", "TRIM_HORIZON", "9", True),
        ("kinesis", "AT_TIMESTAMP:2026-01-01T00:00:00.000000Z", "9", None),
        ("kinesis", "nowhere", "9", None),
        ("s3", "", "1", True),
        ("s3", "2", "10", True),
        ("s3", "1", "1:500", True),
        ("s3", "1:500", "1", False),
        ("s3", "1:500", "1:500", False),
        ("s3", "1:500", "1:600", None),
        ("s3", "nowhere", "1", None),
    ],
)
def test_positions_have_the_order_of_their_kind(kind: str, one: str, other: str, is_before: bool | None) -> None:
    assert kind_named(kind).is_before(one, other) is is_before
    assert str(ItemPosition.parse("1:500")) == "1:500"
