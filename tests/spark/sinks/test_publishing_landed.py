"""Landed files that are published in the Parquet dataset unchanged."""

from __future__ import annotations

import errno
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.sources.landed import EventTimeBounds
from airflow_provider_coordination.spark.delivery import Attempt, DeliveryError, Prepared, SinkUnavailableError
from airflow_provider_coordination.spark.files import MissingFileError
from airflow_provider_coordination.spark.landed_files import ensure_landed
from airflow_provider_coordination.spark.landed_identity import LANDED_BATCH, as_landed, file_name, under_token
from airflow_provider_coordination.spark.parquet_files import write_table
from airflow_provider_coordination.spark.sink_settings import MAIN
from airflow_provider_coordination.spark.sinks.parquet import ParquetLandedDelivery, ParquetSink
from airflow_provider_coordination.spark.storage import publish
from tests.support.sinks import an_attempt

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BATCH = "shard-1-abc"
FOLDER = f"clicks/{BATCH}"
LANDED = as_landed(pa.table({"n": [1, 2]}), BATCH)


@pytest.fixture
def dataset_folder(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def landed(dataset_folder: Path) -> Attempt:
    uri = str(dataset_folder / "_landing" / FOLDER / file_name("TRIM_HORIZON", 1))
    return an_attempt(BATCH, file=uri, file_bytes=write_table(LANDED, uri))


def deliver(sink: ParquetLandedDelivery, attempt: Attempt) -> None:
    prepare(sink, attempt)
    sink.commit(MAIN, [attempt])


def prepare(sink: ParquetLandedDelivery, attempt: Attempt) -> Prepared:
    prepared = sink.prepare([attempt], [MAIN])[attempt.batch_id]
    if isinstance(prepared, Exception):
        raise prepared
    return prepared


def again(attempt: Attempt, token: int = 2) -> Attempt:
    """The next delivery by another owner, after the former one was rejected."""
    return replace(
        attempt, batch=replace(attempt.batch, redeliver=True), set_id=f"{BATCH}.{token}", fencing_token=token
    )


def published(dataset_folder: Path) -> list[int]:
    return [n for file in dataset_folder.glob("*.parquet") for n in pq.read_table(file)["n"].to_pylist()]


def test_publishing_moves_the_landed_file_to_its_batch_name(dataset_folder: Path, landed: Attempt) -> None:
    deliver(ParquetLandedDelivery(str(dataset_folder)), landed)
    assert pq.read_table(dataset_folder / "shard-1-abc.parquet").num_rows == 2
    assert not Path(landed.file).exists()


def test_batch_with_excluded_records_is_not_published_unchanged(dataset_folder: Path, landed: Attempt) -> None:
    bounds = EventTimeBounds(column="at", type="timestamp", earliest=NOW, latest=None)
    bounded = replace(landed, batch=replace(landed.batch, bounds=bounds))
    with pytest.raises(DeliveryError, match=r"leaves records out by their field 'at', .* give the job a 'schema' or"):
        deliver(ParquetLandedDelivery(str(dataset_folder)), bounded)
    assert not published(dataset_folder)


def test_published_rows_are_counted(dataset_folder: Path, landed: Attempt) -> None:
    prepared = prepare(ParquetLandedDelivery(str(dataset_folder)), landed)
    assert (prepared.records, prepared.unrouted) == ({MAIN: 2}, 0)


@pytest.mark.parametrize("keep", [False, True])
def test_repeated_publishing_changes_nothing(dataset_folder: Path, landed: Attempt, keep: bool) -> None:
    for _ in range(3):
        deliver(ParquetLandedDelivery(str(dataset_folder), keep=keep), landed)
    assert [path.name for path in dataset_folder.glob("*.parquet")] == ["shard-1-abc.parquet"]


def test_missing_landed_file_is_an_error_with_a_remedy(dataset_folder: Path) -> None:
    with pytest.raises(DeliveryError, match=r"gone\.parquet is gone: restore it, or reset its partition"):
        prepare(
            ParquetLandedDelivery(str(dataset_folder)), an_attempt(BATCH, file=str(dataset_folder / "gone.parquet"))
        )


def test_truncated_landed_file_is_never_published(dataset_folder: Path, landed: Attempt) -> None:
    content = Path(landed.file).read_bytes()
    Path(landed.file).write_bytes(content[: len(content) // 2])
    with pytest.raises(DeliveryError, match=r"has \d+ bytes instead of the \d+ that were landed: restore it"):
        deliver(ParquetLandedDelivery(str(dataset_folder)), landed)
    assert published(dataset_folder) == []


def test_published_file_restores_its_renamed_landed_file(dataset_folder: Path, landed: Attempt) -> None:
    deliver(ParquetLandedDelivery(str(dataset_folder)), landed)
    ensure_landed(again(landed), [ParquetSink(name=MAIN, path=str(dataset_folder))])
    assert pq.read_table(landed.file).equals(LANDED) and published(dataset_folder) == [1, 2]


def test_transformed_file_never_serves_as_landed_file(dataset_folder: Path, landed: Attempt) -> None:
    Path(landed.file).unlink()
    size = write_table(pa.table({"n": [1, 2]}), str(dataset_folder / "shard-1-abc.parquet"))
    with pytest.raises(DeliveryError, match="is gone: restore it"):
        ensure_landed(
            an_attempt(BATCH, file=landed.file, file_bytes=size), [ParquetSink(name=MAIN, path=str(dataset_folder))]
        )


@pytest.mark.parametrize("keep", [False, True])
def test_rejected_delivery_is_replaced_despite_its_renamed_file(
    dataset_folder: Path, landed: Attempt, keep: bool
) -> None:
    deliver(ParquetLandedDelivery(str(dataset_folder)), landed)
    deliver(ParquetLandedDelivery(str(dataset_folder), keep=keep), again(landed))
    assert published(dataset_folder) == [1, 2]


def test_previous_owner_does_not_publish_files_of_another_lease(dataset_folder: Path, landed: Attempt) -> None:
    former = ParquetLandedDelivery(str(dataset_folder))
    former.prepare([landed], [MAIN])
    publish(landed.file, under_token(landed.file, 2))
    with pytest.raises(MissingFileError, match="is gone"):
        former.commit(MAIN, [landed])
    assert published(dataset_folder) == []


def test_previous_owner_does_not_publish_after_a_sweep(dataset_folder: Path, landed: Attempt) -> None:
    former, next_owner = (
        ParquetLandedDelivery(str(dataset_folder), keep=True),
        ParquetLandedDelivery(str(dataset_folder), keep=True),
    )
    former.prepare([landed], [MAIN])
    next_owner.sweep({FOLDER: 2})
    with pytest.raises(MissingFileError, match="is gone"):
        former.commit(MAIN, [landed])
    assert published(dataset_folder) == []


def test_sweep_leaves_staged_files_of_later_leases(dataset_folder: Path, landed: Attempt) -> None:
    later = replace(landed, fencing_token=12)
    sink = ParquetLandedDelivery(str(dataset_folder), keep=True)
    sink.prepare([later], [MAIN])
    sink.sweep({FOLDER: 3})
    sink.commit(MAIN, [later])
    assert published(dataset_folder) == [1, 2]


@pytest.mark.parametrize("keep", [False, True])
def test_many_batches_publish_together_and_skip_committed_ones(dataset_folder: Path, keep: bool) -> None:
    attempts = []
    for number in range(3):
        uri = str(dataset_folder / "_landing" / FOLDER / file_name(str(number), 1))
        size = write_table(as_landed(pa.table({"n": [number]}), f"batch-{number}"), uri)
        attempts.append(an_attempt(f"batch-{number}", file=uri, file_bytes=size))
    delivery = ParquetLandedDelivery(str(dataset_folder), keep=keep)
    deliver(delivery, attempts[1])
    prepared = delivery.prepare(attempts, [MAIN])
    delivery.commit(MAIN, attempts)
    delivery.discard(attempts)
    assert list(prepared) == ["batch-0", "batch-1", "batch-2"]
    assert sorted(published(dataset_folder)) == [0, 1, 2]


# Small files, which are put together


def land(dataset_folder: Path, batch_id: str, rows: int, **columns: list[str]) -> Attempt:
    table = pa.table({"n": list(range(rows)), **columns, "_batch_id": [batch_id] * rows})
    uri = str(dataset_folder / "_landing" / "clicks" / batch_id / file_name("5", 1))
    size = write_table(as_landed(table, batch_id), uri)
    return an_attempt(batch_id, file=uri, file_bytes=size, records=rows)


def deliver_all(delivery: ParquetLandedDelivery, attempts: list[Attempt]) -> list[str | None]:
    """Deliver as many of the batches as possible; return their shared files."""
    prepared = delivery.prepare(attempts, [MAIN])
    going = [
        replace(attempt, shared_file=made.shared_file)
        for attempt in attempts
        if isinstance(made := prepared[attempt.batch_id], Prepared)
    ]
    delivery.commit(MAIN, going)
    delivery.discard(going)
    return [attempt.shared_file for attempt in going]


def held(dataset_folder: Path) -> list[set[str]]:
    return [set(pq.read_table(file)["_batch_id"].to_pylist()) for file in dataset_folder.glob("*.parquet")]


def test_small_landed_files_are_combined_beside_large_ones(
    dataset_folder: Path,
) -> None:
    small = [land(dataset_folder, f"small-{n}", n + 1) for n in range(3)]
    large = land(dataset_folder, "large", 20_000)
    target = 32 * max(attempt.batch.file_bytes for attempt in small)
    deliver_all(ParquetLandedDelivery(str(dataset_folder), target_file_bytes=target), [small[0], large, *small[1:]])
    assert sorted(map(sorted, held(dataset_folder))) == [["large"], ["small-0", "small-1", "small-2"]]
    assert [Path(attempt.file).exists() for attempt in (*small, large)] == [True, True, True, False]
    assert sorted(published(dataset_folder)) == sorted([0, 0, 1, 0, 1, 2, *range(20_000)])


def test_combined_file_does_not_count_as_landed(dataset_folder: Path) -> None:
    attempts = [land(dataset_folder, "a", 1), land(dataset_folder, "b", 2)]
    deliver_all(ParquetLandedDelivery(str(dataset_folder)), attempts)
    [file] = dataset_folder.glob("*.parquet")
    assert LANDED_BATCH not in (pq.read_schema(file).metadata or {})


def test_landed_files_are_combined_by_matching_columns(dataset_folder: Path) -> None:
    attempts = [
        land(dataset_folder, "a", 1),
        land(dataset_folder, "b", 1, name=["x"]),
        land(dataset_folder, "c", 1),
        land(dataset_folder, "d", 1, name=["y"]),
    ]
    shared = deliver_all(ParquetLandedDelivery(str(dataset_folder)), attempts)
    assert shared[0] == shared[2] != shared[1] == shared[3]
    assert sorted(map(sorted, held(dataset_folder))) == [["a", "c"], ["b", "d"]]


def test_corrupt_landed_file_holds_no_other(dataset_folder: Path) -> None:
    attempts = [land(dataset_folder, f"b-{n}", 200) for n in range(5)]
    damaged = Path(attempts[2].file)
    content = bytearray(damaged.read_bytes())
    content[4:60] = b"x" * 56
    damaged.write_bytes(content)
    delivery = ParquetLandedDelivery(str(dataset_folder))
    refused = delivery.prepare(attempts, [MAIN])["b-2"]
    assert isinstance(refused, DeliveryError) and "cannot be read" in str(refused)
    deliver_all(delivery, attempts)
    assert sorted(batch_id for batches in held(dataset_folder) for batch_id in batches) == ["b-0", "b-1", "b-3", "b-4"]


def test_rejectable_batches_are_not_combined(dataset_folder: Path) -> None:
    assert deliver_all(
        ParquetLandedDelivery(str(dataset_folder), keep=True),
        [land(dataset_folder, "a", 1), land(dataset_folder, "b", 1)],
    ) == [
        None,
        None,
    ]
    assert sorted(map(sorted, held(dataset_folder))) == [["a"], ["b"]]


def test_unwritable_dataset_is_not_reported_as_unreadable_files(
    dataset_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def combine_landed(sink: ParquetSink, attempts: list[Attempt]) -> None:
        tried.append(len(attempts))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ParquetSink, "combine_landed", combine_landed)
    prepared = ParquetLandedDelivery(str(dataset_folder)).prepare(
        [land(dataset_folder, "a", 1), land(dataset_folder, "b", 1), land(dataset_folder, "c", 1)], [MAIN]
    )
    assert [type(result) for result in prepared.values()] == [SinkUnavailableError] * 3 and tried == [3]
