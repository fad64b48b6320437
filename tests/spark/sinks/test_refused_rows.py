"""Rows that a sink refuses: they become dead letters, and the rest of their batch is delivered."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.bad_records import BadRecords
from airflow_provider_coordination.spark.delivery import DeliveryError, Prepared
from airflow_provider_coordination.spark.job_settings import BadRecordSettings
from airflow_provider_coordination.spark.layout import ITEM_RECORDS
from airflow_provider_coordination.spark.parquet_files import write_table
from airflow_provider_coordination.spark.refused_rows import RefusedRows, find_refused
from airflow_provider_coordination.spark.sinks import owed
from tests.support.refusing_sinks import KINDS, RefusingTarget, a_refusing_target, deliver
from tests.support.sinks import SINKS, BatchRows, OnServer, an_attempt, under_next_lease

VALUES = {"a-1": [1, None, 2, 3], "b-1": [4], "c-1": [None]}
ACCEPTED = {"a-1": [1, 2, 3], "b-1": [4]}
ON_SERVERS = [pytest.mark.integration, pytest.mark.share(0.3)]
ATTEMPTS = [an_attempt(batch_id) for batch_id in VALUES]


@pytest.fixture(
    params=[pytest.param(name, marks=ON_SERVERS if isinstance(SINKS[name], OnServer) else ()) for name in KINDS]
)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> RefusingTarget:
    kind = SINKS[request.param]
    url = request.getfixturevalue(kind.fixture) if isinstance(kind, OnServer) else ""
    return a_refusing_target(request.param, tmp_path / "sink", url)


def test_refused_rows_become_dead_letters_beside_the_rest(target: RefusingTarget) -> None:
    deliver(target.sink(), ATTEMPTS, VALUES)

    assert target.visible == ACCEPTED
    assert target.letters == {"a-1": 1, "c-1": 1}
    assert target.kept == []
    row = target.letter_rows[0]
    assert (row["stage"], row["sink"], row["source"], row["row"]) == ("sink", "main", "clicks", '{"n": null}')
    assert "n" in row["error"] and "null" in row["error"].lower()


def test_batch_above_the_share_waits_whole(target: RefusingTarget) -> None:
    sink = target.sink(max_share=0.25)
    values = {"a-1": [1, 2, 3, None, None], "b-1": [4], "c-1": []}

    with pytest.raises(DeliveryError, match=r"batch a-1: sink 'main' refuses 2 or more of 5 rows, .*max_refused_share"):
        deliver(sink, ATTEMPTS, values)
    sink.discard(ATTEMPTS)

    assert "a-1" not in target.visible and target.letters == {}


def test_refused_rows_count_in_the_budget(target: RefusingTarget) -> None:
    bad_records = BadRecords(1, saved=5)
    sink = target.sink(bad_records=bad_records)
    deliver(sink, ATTEMPTS[:1], VALUES)

    with pytest.raises(DeliveryError, match="make 2 in this run, more than 'max_parse_exceptions' = 1"):
        deliver(sink, ATTEMPTS[2:], VALUES)

    assert bad_records.total == 2 and target.letters == {"a-1": 1}
    delivered = bad_records.with_refused("a-1", Prepared(records={"main": 4}))
    assert delivered.records == {"main": 3, "dead_letter": 1} and delivered.refused == {"main": 1}


def test_rejected_batch_replaces_its_refused_rows(target: RefusingTarget) -> None:
    deliver(target.sink(), ATTEMPTS, VALUES)
    again = [under_next_lease(attempt, rejected=True) for attempt in ATTEMPTS]

    deliver(target.sink(), again, {"a-1": [1, 2], "b-1": [None, 5], "c-1": [None]})

    assert target.visible == {"a-1": [1, 2], "b-1": [5]}
    assert target.letters == {"b-1": 1, "c-1": 1} and target.kept == []


def test_refused_rows_of_the_committing_owner_count(target: RefusingTarget) -> None:
    former, later = target.sink(), target.sink()
    former.prepare(ATTEMPTS, BatchRows(VALUES))
    former.commit(ATTEMPTS[:1])
    again = [under_next_lease(attempt) for attempt in ATTEMPTS]
    for attempt in again:
        later.sweep({attempt.folder: attempt.fencing_token})

    deliver(later, again, {"a-1": [-1], "b-1": [None, -4], "c-1": [-5]})

    assert target.visible == {"a-1": [1, 2, 3], "b-1": [-4], "c-1": [-5]}
    assert target.letters == {"a-1": 1, "b-1": 1} and target.kept == []


def test_next_owner_publishes_rows_kept_by_a_dead_one(target: RefusingTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as dying:
        dying.setattr(RefusedRows, "publish", lambda *_: None)
        deliver(target.sink(), ATTEMPTS, VALUES)
    assert target.letters == {}
    again = [under_next_lease(attempt) for attempt in ATTEMPTS]
    sink = target.sink()
    assert owed(sink, again) == []

    sink.commit(again)

    assert target.visible == ACCEPTED and target.letters == {"a-1": 1, "c-1": 1} and target.kept == []


# Without a sink


@pytest.mark.parametrize(("later", "letters"), [(0, 1), (1, 0)])
def test_rows_of_a_batch_that_another_owner_committed_stay_unseen(tmp_path: Path, later: int, letters: int) -> None:
    refused = RefusedRows(str(tmp_path), layout=ITEM_RECORDS, source="clicks", max_share=0.5, bad_records=BadRecords())
    attempt = ATTEMPTS[0]
    refused.keep("main", attempt, pa.table({"n": [None], "_batch_id": ["a-1"]}), ["null"])
    refused.publish("main", [attempt], lambda _: {"a-1": attempt.fencing_token + later})
    assert len(list(tmp_path.glob("*.parquet"))) == letters
    assert not list(tmp_path.rglob("_refused/**/*.parquet"))


def test_dead_letter_has_the_record_of_its_row(tmp_path: Path) -> None:
    landed = pa.table(
        {"_origin": ["o", "o"], "_row": [0, 1], "data": [b"zero", b"one"], "other": [7, 8], "_batch_id": ["a-1"] * 2}
    )
    file = str(tmp_path / "landed.parquet")
    write_table(landed, file)
    attempt = an_attempt("a-1", file=file)
    refused = pa.table({"_origin": ["o", "lost"], "_row": [1, 9], "euros": [0.5, 1.0], "_batch_id": ["a-1"] * 2})
    rows = RefusedRows(
        str(tmp_path / "dead"), layout=ITEM_RECORDS, source="s", max_share=1, bad_records=BadRecords(saved=5)
    )

    letters = rows._letters("main", attempt, refused, ["too small", "no"])

    first, second = letters.to_pylist()
    assert (first["_origin"], first["_row"], first["data"], first["record"]) == ("o", 1, b"one", '{"other": 8}')
    assert first["row"] == '{"_origin": "o", "_row": 1, "euros": 0.5}' and first["error"] == "too small"
    assert (second["_origin"], second["_row"], second["data"], second["record"]) == ("lost", 9, None, None)
    assert first["failed_at"] <= datetime.now(UTC)


@given(st.lists(st.integers(0, 30), max_size=60), st.sets(st.integers(0, 30)), st.integers(1, 60))
def test_search_loads_every_row_that_is_not_refused(keys: list[int], wrong: set[int], limit: int) -> None:
    loaded: list[int] = []

    def load(low: int, high: int) -> str | None:
        some = keys[low:high]
        if wrong & set(some) or len(set(some)) < len(some) or set(loaded) & set(some):
            return "refused"
        loaded.extend(some)
        return None

    def fails_alone(low: int, high: int) -> str | None:
        before = list(loaded)
        error = load(low, high)
        loaded[:] = before
        return error

    refused = find_refused(len(keys), load, fails_alone, limit)

    expected = [n for n, key in enumerate(keys) if key in wrong or key in keys[:n]]
    if len(expected) <= limit:
        assert sorted(refused) == expected
        assert loaded == [key for n, key in enumerate(keys) if n not in refused]
    else:
        assert len(refused) > limit


def test_search_tries_few_rows_if_every_row_is_refused() -> None:
    tries: list[tuple[int, int]] = []

    def refuse(low: int, high: int) -> str:
        tries.append((low, high))
        return "no such place"

    assert len(find_refused(100_000, refuse, refuse, 1000)) > 1000
    assert len(tries) == 6


@pytest.mark.parametrize("share", [0.0, 1.5, -1.0])
def test_share_must_be_a_share(share: float) -> None:
    with pytest.raises(ConfigurationError, match=r"'max_refused_share' must be positive and at most 1; got"):
        BadRecordSettings(dead_letter_path="/dead", max_refused_share=share).check()


def test_share_needs_a_place_for_dead_letters() -> None:
    with pytest.raises(ConfigurationError, match="'max_refused_share' needs 'dead_letter_path'"):
        BadRecordSettings(max_refused_share=0.1).check()
