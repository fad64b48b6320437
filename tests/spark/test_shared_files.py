"""Only the owner of all batches of a shared file can make it visible."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.spark import parquet_files, storage
from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.delivery import Attempt
from airflow_provider_coordination.spark.files import Files, MissingFileError
from airflow_provider_coordination.spark.s3_objects import BucketFiles
from airflow_provider_coordination.spark.shared_files import assign_shared_files, max_shared_bytes, with_shared_file
from airflow_provider_coordination.spark.sinks.parquet import ParquetSink
from tests.support.counted_objects import CountedObjects
from tests.support.sinks import BatchRows, an_attempt, under_next_lease
from tests.support.waiting import PATIENCE_SECONDS

VALUES = {"a-1": [1, 2], "b-1": [3], "c-1": [4, 5, 6]}
OTHERS = {"a-1": [-1, -2], "b-1": [-3], "c-1": [-4, -5, -6]}
"""What a former owner made of the same batches."""
STORES = ["local", "s3"]


class PlainRequests:
    """Requests that nothing happens to; one may come late, see `LatePut`."""

    def make(self, what: str, call: Callable[[], object], error: Callable[[], Exception]) -> object:
        return call()


@pytest.fixture(params=STORES)
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ParquetSink]:
    """A dataset on a filesystem that renames, and on one that does not."""
    made = ParquetSink(name="main", path=str(tmp_path / "out"))
    if request.param == "local":
        yield made
        return
    objects = BucketFiles(CountedObjects(PlainRequests(), lambda path: None), fs.LocalFileSystem)  # type: ignore[arg-type]

    def opened(uri: str, access: Access) -> tuple[Files, str]:
        Path(uri).parent.mkdir(parents=True, exist_ok=True)
        return objects, uri

    with patch.object(storage, "open_files", opened):
        yield made


def first_owner(*batch_ids: str) -> list[Attempt]:
    return with_shared_file([an_attempt(batch_id) for batch_id in batch_ids or VALUES])


def recorded(attempt: Attempt, *, rejected: bool = False) -> Attempt:
    """Return the delivery by the next owner of a batch that was recorded with its file."""
    again = under_next_lease(attempt, rejected=rejected)
    return replace(again, batch=replace(again.batch, shared_file=attempt.shared_file), shared_file=None)


def deliver(sink: ParquetSink, attempts: list[Attempt], values: dict[str, list[int]] = VALUES) -> None:
    sink.prepare(attempts, BatchRows(values))
    sink.commit(attempts)
    sink.discard(attempts)


def take_over(sink: ParquetSink, attempts: list[Attempt], values: dict[str, list[int]] = VALUES) -> None:
    for attempt in attempts:
        sink.sweep({attempt.folder: attempt.fencing_token})
    taken = sink.committed(attempts)
    deliver(sink, [attempt for attempt in attempts if attempt.batch_id not in taken], values)


def visible(sink: ParquetSink) -> dict[str, list[int]]:
    seen: dict[str, list[int]] = {}
    for file in Path(sink.path).glob("*.parquet"):
        for row in pq.read_table(file).to_pylist():
            seen.setdefault(row["_batch_id"], []).append(row["n"])
    return seen


def files(sink: ParquetSink) -> list[Path]:
    return list(Path(sink.path).glob("*.parquet"))


def leftovers(sink: ParquetSink) -> list[Path]:
    return [path for path in Path(sink.path, "_staging").rglob("*") if path.is_file()]


# Which batches go together


def sized(batch_id: str, size: int, **changes: object) -> Attempt:
    return an_attempt(batch_id, file_bytes=size, **changes)


@pytest.mark.parametrize(
    ("sizes", "files"),
    [
        ([], []),
        ([10], [[10]]),
        ([10, 20, 30, 40], [[10, 20, 30, 40]]),
        ([60, 60, 30], [[60], [60, 30]]),
        ([100, 1], [[100], [1]]),
        ([500, 1, 2], [[500], [1, 2]]),
    ],
)
def test_batches_share_a_file_up_to_its_size_undivided(sizes: list[int], files: list[list[int]]) -> None:
    named = assign_shared_files([sized(f"b-{n}", size) for n, size in enumerate(sizes)], lambda attempt: 100)
    found: dict[str, list[int]] = {}
    for attempt in named:
        found.setdefault(attempt.shared_file or attempt.batch_id, []).append(attempt.batch.file_bytes)
    assert list(found.values()) == files


def test_single_batch_keeps_its_own_file_name() -> None:
    [alone] = assign_shared_files([sized("b-1", 10)], lambda attempt: 100)
    assert alone.shared_file is None


def test_possibly_delivered_batch_shares_no_file(sink: ParquetSink) -> None:
    fresh = an_attempt("a-1")
    assert max_shared_bytes(fresh, [sink]) == sink.target_file_bytes
    for changes in ({"redeliver": True}, {"shared_file": "clicks/a-1/1/x"}):
        assert max_shared_bytes(replace(fresh, batch=replace(fresh.batch, **changes)), [sink]) == 0


def test_late_requests_of_a_previous_owner_prevent_sharing(sink: ParquetSink) -> None:
    later = under_next_lease(an_attempt("a-1"))
    assert (max_shared_bytes(later, [sink]) > 0) is storage.renames(sink.path)


def test_store_without_conditional_writes_shares_no_files(tmp_path: Path) -> None:
    class UnconditionalStore(CountedObjects):
        def put_object(self, *, IfNoneMatch: str | None = None, **details: object) -> dict[str, object]:  # noqa: N803
            return super().put_object(**details)  # type: ignore[arg-type]

    objects = BucketFiles(UnconditionalStore(PlainRequests(), lambda path: None), fs.LocalFileSystem)  # type: ignore[arg-type]
    with patch.object(storage, "open_files", lambda uri, access: (objects, uri)):
        assert max_shared_bytes(an_attempt("a-1"), [ParquetSink(name="main", path=str(tmp_path))]) == 0
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


# What is delivered


def test_shared_file_shows_several_batches_and_leaves_nothing(sink: ParquetSink) -> None:
    deliver(sink, first_owner())
    assert visible(sink) == VALUES and len(files(sink)) == 1 and leftovers(sink) == []


def test_shared_file_is_delivered_beside_a_separate_one(sink: ParquetSink) -> None:
    attempts = [*first_owner("a-1", "b-1"), an_attempt("c-1")]
    deliver(sink, attempts)
    assert visible(sink) == VALUES and len(files(sink)) == 2


def test_batches_without_rows_make_no_visible_file(sink: ParquetSink) -> None:
    deliver(sink, first_owner(), {batch_id: [] for batch_id in VALUES})
    assert files(sink) == [] and leftovers(sink) == []


def test_batch_without_rows_is_not_listed_in_the_file(sink: ParquetSink) -> None:
    deliver(sink, attempts := first_owner(), {**VALUES, "b-1": []})
    assert sink.committed([recorded(attempt) for attempt in attempts]) == {"a-1", "c-1"}


def test_repeated_commit_changes_nothing(sink: ParquetSink) -> None:
    sink.prepare(attempts := first_owner(), BatchRows({**VALUES, "b-1": []}))
    for some in (attempts, attempts[1:2], attempts[:1], attempts):
        sink.commit(some)
    assert visible(sink) == {"a-1": [1, 2], "c-1": [4, 5, 6]}


def test_rejected_batch_stays_in_its_shared_file(sink: ParquetSink) -> None:
    deliver(sink, attempts := first_owner())
    deliver(sink, [recorded(attempt, rejected=True) for attempt in attempts], OTHERS)
    assert visible(sink) == VALUES and len(files(sink)) == 1 and leftovers(sink) == []


def test_rejected_batch_missing_from_its_file_is_redelivered(sink: ParquetSink) -> None:
    sink.prepare(attempts := first_owner(), BatchRows(OTHERS))
    take_over(sink, [recorded(attempt, rejected=True) for attempt in attempts])
    assert visible(sink) == VALUES


def test_shared_file_allows_an_already_delivered_batch(sink: ParquetSink) -> None:
    deliver(sink, [an_attempt("b-1")])
    attempts = first_owner()
    sink.prepare([attempts[0], attempts[2]], BatchRows(VALUES))
    sink.commit(attempts)
    assert visible(sink) == VALUES


def test_already_delivered_batches_need_no_shared_file(
    sink: ParquetSink,
) -> None:
    deliver(sink, [an_attempt(batch_id) for batch_id in VALUES])
    sink.commit(first_owner())
    assert visible(sink) == VALUES


# Former owners


@pytest.mark.parametrize("taken_over", ["a-1", "b-1", "c-1"])
def test_batch_takeover_before_commit_prevents_the_shared_file(sink: ParquetSink, taken_over: str) -> None:
    former = first_owner()
    sink.prepare(former, BatchRows(OTHERS))
    take_over(sink, [recorded(attempt) for attempt in former if attempt.batch_id == taken_over])
    rest = [attempt for attempt in former if attempt.batch_id != taken_over]
    for some in (former, rest, rest[:1]):
        with pytest.raises(MissingFileError):
            sink.commit(some)
    assert visible(sink) == {taken_over: VALUES[taken_over]}
    again = [replace(each, batch=replace(each.batch, shared_file=each.shared_file), shared_file=None) for each in rest]
    deliver(sink, again)
    sink.discard(former)
    assert visible(sink) == VALUES and leftovers(sink) == []


@pytest.mark.parametrize("taken_over", ["a-1", "b-1", "c-1"])
def test_batch_takeover_after_commit_keeps_the_shared_file(sink: ParquetSink, taken_over: str) -> None:
    former = first_owner()
    sink.prepare(former, BatchRows(VALUES))
    sink.commit(former)
    take_over(sink, [recorded(attempt) for attempt in former if attempt.batch_id == taken_over], OTHERS)
    sink.commit(former)
    assert visible(sink) == VALUES


def test_owners_take_over_batches_of_a_file_concurrently(sink: ParquetSink) -> None:
    former = first_owner()
    sink.prepare(former, BatchRows(OTHERS))
    owners = [[recorded(attempt)] for attempt in former]
    for attempts in owners:
        sink.prepare(attempts, BatchRows(VALUES))
    with pytest.raises(CoordinationError):
        sink.commit(former)
    for attempts in owners:
        sink.commit(attempts)
    assert visible(sink) == VALUES


def test_dead_owner_leaves_preventing_a_file_to_the_next(
    sink: ParquetSink,
) -> None:
    former = first_owner()
    sink.prepare(former, BatchRows(OTHERS))
    died = [recorded(attempt) for attempt in former[:2]]
    sink.settle_shared_files(died, BatchRows(VALUES).schema)
    again = [replace(under_next_lease(attempt), batch=attempt.batch) for attempt in died]
    take_over(sink, [*again, recorded(former[2])])
    sink.commit(former)  # all of it is in, and passed over
    assert visible(sink) == VALUES


def test_file_becoming_visible_during_a_takeover_is_found(sink: ParquetSink) -> None:
    former = first_owner()
    next_owner = [recorded(attempt) for attempt in former]
    sink.prepare(former, BatchRows(VALUES))
    delete = storage.delete_folder

    def commits_first(uri: str, access: Access) -> None:
        if former and uri.endswith(former[0].shared_file or ""):
            sink.commit(former)
        delete(uri, access)

    with patch("airflow_provider_coordination.spark.shared_files.delete_folder", commits_first):
        sink.prepare(next_owner, BatchRows(OTHERS))
    sink.commit(next_owner)
    sink.discard(next_owner)
    assert visible(sink) == VALUES and len(files(sink)) == 1


def test_late_request_finds_its_name_taken(tmp_path: Path) -> None:
    """The former owner's PUT is under way while the next owner looks, and comes after it delivered."""
    on_its_way, comes = threading.Event(), threading.Event()

    class DelayedStore(CountedObjects):
        def put_object(self, *, Key: str, **details: object) -> dict[str, object]:  # noqa: N803
            if threading.current_thread() is zombie and Path(Key).parent.name == "out":
                on_its_way.set()
                assert comes.wait(PATIENCE_SECONDS)
            return super().put_object(Key=Key, **details)  # type: ignore[arg-type]

    objects = BucketFiles(DelayedStore(PlainRequests(), lambda path: None), fs.LocalFileSystem)  # type: ignore[arg-type]
    sink, refused = ParquetSink(name="main", path=str(tmp_path / "out")), []
    former = first_owner()

    def opened(uri: str, access: Access) -> tuple[Files, str]:
        Path(uri).parent.mkdir(parents=True, exist_ok=True)
        return objects, uri

    def commit() -> None:
        try:
            sink.commit(former)
        except MissingFileError as error:
            refused.append(str(error))

    zombie = threading.Thread(target=commit)
    with patch.object(storage, "open_files", opened):
        sink.prepare(former, BatchRows(OTHERS))
        zombie.start()
        assert on_its_way.wait(PATIENCE_SECONDS)
        take_over(sink, [recorded(attempt) for attempt in former[1:]])
        comes.set()
        zombie.join(PATIENCE_SECONDS)
        take_over(sink, [recorded(former[0])])
    assert visible(sink) == VALUES
    assert len(refused) == 1 and "another owner has taken the name" in refused[0]


def test_next_owner_without_rows_takes_the_name(sink: ParquetSink) -> None:
    """In a bucket, a request of the former owner may still come. A rename needs its staged file, which is swept."""
    take_over(sink, [under_next_lease(an_attempt("a-1"))], {"a-1": []})
    assert visible(sink) == {}
    assert len(files(sink)) == (0 if storage.renames(sink.path) else 1)


def test_delivery_with_a_lost_response_is_visible(sink: ParquetSink) -> None:
    former = first_owner()
    sink.prepare(former, BatchRows(VALUES))
    sink.commit(former)  # and the response was lost
    sink.discard(former)
    own = [replace(a, batch=replace(a.batch, shared_file=a.shared_file), shared_file=None) for a in former]
    assert sink.committed(own) == set(VALUES)
    deliver(sink, own, OTHERS)
    assert visible(sink) == VALUES


def test_job_with_rejectable_batches_keeps_shared_files(
    sink: ParquetSink,
) -> None:
    deliver(sink, attempts := first_owner())
    confirmed = [recorded(attempt, rejected=True) for attempt in attempts]
    delivery = sink.landed_delivery(keep=True)
    assert max_shared_bytes(confirmed[0], [sink]) == 0
    delivery.commit("main", confirmed)
    assert visible(sink) == VALUES


class RecordedRequests(PlainRequests):
    """Requests that are noted."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def make(self, what: str, call: Callable[[], object], error: Callable[[], Exception]) -> object:
        self.made.append(what)
        return call()


class UnconditionalObjects(CountedObjects):
    """A store that passes over conditions."""

    def put_object(self, *, IfNoneMatch: str | None = None, **details: object) -> dict[str, object]:  # noqa: N803
        return super().put_object(**details)  # type: ignore[arg-type]


@pytest.mark.parametrize(("store", "looks"), [(CountedObjects, 0), (UnconditionalObjects, 2)])
def test_own_file_name_is_checked_only_when_necessary(tmp_path: Path, store: type[CountedObjects], looks: int) -> None:
    listed = RecordedRequests()
    objects = BucketFiles(store(listed, lambda path: None), fs.LocalFileSystem)  # type: ignore[arg-type]

    def opened(uri: str, access: Access) -> tuple[Files, str]:
        Path(uri).parent.mkdir(parents=True, exist_ok=True)
        return objects, uri

    file = str(tmp_path / "landed" / "5.1.ab.parquet")
    with patch.object(storage, "open_files", opened):
        size = parquet_files.write_table(BatchRows(VALUES).schema.empty_table(), file)
        delivery = ParquetSink(name="main", path=str(tmp_path / "out"), target_file_bytes=1).landed_delivery(keep=False)
        attempts = [an_attempt("a-1", file=file, file_bytes=size)]
        delivery.prepare(attempts, ["main"])
        delivery.commit("main", attempts)
    asked = [each for each in listed.made if each.startswith("files.look") and each.endswith("/out/a-1.parquet")]
    assert len(asked) == looks
