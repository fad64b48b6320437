"""Landed files belong to one lease at a time, and no job deletes files that were landed under a later one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import PartitionNotOwnedError
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.sources.landed import LandedBatch
from airflow_provider_coordination.spark.landed_files import LandedFiles
from airflow_provider_coordination.spark.landed_identity import file_name, token_of
from airflow_provider_coordination.spark.parquet_files import write_table
from airflow_provider_coordination.spark.storage import files_below
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.support.batches import a_batch
from tests.support.freezing import FailingCalls, counted_files

KEY = "p"


class Owner:
    """One job over one partition."""

    def __init__(self, store: InMemoryStore, root: Path, name: str) -> None:
        self.root = str(root)
        self.coordinator = SourceCoordinator(store, "s", name)
        self.coordinator.initialize()
        self.coordinator.create_partitions({KEY: {}})
        assert self.coordinator.leases.acquire(1)
        self.files = LandedFiles(self.root, self.coordinator)

    def land(self) -> LandedBatch:
        name = file_name("5", self.coordinator.leases.fencing_token(KEY))
        file = f"{self.root}/{self.files.folder(KEY)}/{name}"
        return a_batch("5", "9", file=file, file_bytes=write_table(pa.table({"n": [1]}), file))

    def give_up(self) -> None:
        self.coordinator.leases.give_up(KEY)


@pytest.fixture
def store() -> InMemoryStore:
    return InMemoryStore()


@pytest.fixture
def previous_owner(store: InMemoryStore, tmp_path: Path) -> Owner:
    owner = Owner(store, tmp_path, "former")
    take_over(owner.files)
    return owner


def take_over(files: LandedFiles, *recorded: LandedBatch) -> int:
    result = files.take_over({KEY: recorded})[KEY]
    if isinstance(result, Exception):
        raise result
    return result


def follow(previous_owner: Owner, store: InMemoryStore, tmp_path: Path) -> Owner:
    previous_owner.give_up()
    return Owner(store, tmp_path, "next")


@contextmanager
def failing(what: str, object_store: str) -> Iterator[FailingCalls]:
    """Let the file calls of a kind fail."""
    calls = FailingCalls(what)
    with counted_files(calls, object_store=object_store, published=lambda path: None):
        yield calls


def landed_names(tmp_path: Path) -> list[str]:
    return sorted(files_below(str(tmp_path)))


def test_unrecorded_files_are_deleted_and_recorded_ones_change_lease(
    previous_owner: Owner, store: InMemoryStore, tmp_path: Path
) -> None:
    recorded, _ = previous_owner.land(), previous_owner.land()
    owner = follow(previous_owner, store, tmp_path)
    assert take_over(owner.files, recorded) == 1
    assert landed_names(tmp_path) == [owner.files.location(KEY, recorded)]
    assert token_of(owner.files.location(KEY, recorded)) == owner.coordinator.leases.fencing_token(KEY)


def test_recorded_file_is_found_under_any_root_spelling(
    previous_owner: Owner, store: InMemoryStore, tmp_path: Path
) -> None:
    recorded = previous_owner.land()
    owner = follow(previous_owner, store, tmp_path)
    owner.files = LandedFiles(f"file://{tmp_path}//", owner.coordinator)
    assert take_over(owner.files, recorded) == 0
    assert landed_names(tmp_path) == [owner.files.location(KEY, recorded)]


def test_whole_copy_of_a_recorded_file_is_kept(previous_owner: Owner, store: InMemoryStore, tmp_path: Path) -> None:
    recorded = previous_owner.land()
    other = Path(recorded.file.replace(f".{previous_owner.coordinator.leases.fencing_token(KEY)}.", ".7."))
    other.write_bytes(Path(recorded.file).read_bytes()[:20])
    owner = follow(previous_owner, store, tmp_path)
    take_over(owner.files, recorded)
    [kept] = landed_names(tmp_path)
    assert Path(kept).stat().st_size == recorded.file_bytes


def test_damaged_file_is_kept_for_repair(previous_owner: Owner, store: InMemoryStore, tmp_path: Path) -> None:
    recorded = previous_owner.land()
    Path(recorded.file).write_bytes(b"half")
    owner = follow(previous_owner, store, tmp_path)
    take_over(owner.files, recorded)
    assert landed_names(tmp_path) == [owner.files.location(KEY, recorded)]


def test_previous_owner_cannot_restore_a_file_under_its_lease(
    previous_owner: Owner, store: InMemoryStore, tmp_path: Path
) -> None:
    recorded = previous_owner.land()
    owner = follow(previous_owner, store, tmp_path)
    take_over(owner.files, recorded)
    zombie = LandedFiles(previous_owner.root, _as_if_it_held(previous_owner.coordinator, recorded))
    with pytest.raises(PartitionNotOwnedError, match="is used under a later lease"):
        take_over(zombie, recorded)
    assert landed_names(tmp_path) == [owner.files.location(KEY, recorded)]


@pytest.mark.parametrize("object_store", ["", "s3"])
def test_undeletable_files_end_no_takeover(
    previous_owner: Owner, store: InMemoryStore, tmp_path: Path, object_store: str
) -> None:
    unrecorded = previous_owner.land()
    owner = follow(previous_owner, store, tmp_path)
    with failing("files.delete", object_store) as calls:
        assert take_over(owner.files) == 1
    assert calls.failed and landed_names(tmp_path) == [unrecorded.file]
    take_over(follow(owner, store, tmp_path).files)
    assert landed_names(tmp_path) == [], "the next job deletes them"


@pytest.mark.parametrize("object_store", ["", "s3"])
@pytest.mark.parametrize("call", ["files.delete", "files.list"])
def test_undeletable_files_of_a_finished_partition_end_no_round(
    previous_owner: Owner, store: InMemoryStore, tmp_path: Path, call: str, object_store: str
) -> None:
    finished = previous_owner.land()
    previous_owner.coordinator.leases.complete(KEY)
    previous_owner.files.delete(KEY)
    with failing(call, object_store) as calls:
        previous_owner.files.clear()
    assert calls.failed and landed_names(tmp_path) == [finished.file]
    LandedFiles(previous_owner.root, previous_owner.coordinator).sweep_finished()
    assert landed_names(tmp_path) == [], "the next job deletes them"


@pytest.mark.parametrize("call", ["files.delete", "files.list"])
def test_undeletable_files_end_no_sweep(previous_owner: Owner, tmp_path: Path, call: str) -> None:
    finished = previous_owner.land()
    previous_owner.coordinator.leases.complete(KEY)
    with failing(call, "") as calls:
        previous_owner.files.sweep_finished()
    assert calls.failed and landed_names(tmp_path) == [finished.file]


def test_late_deletion_leaves_files_landed_since(previous_owner: Owner, store: InMemoryStore, tmp_path: Path) -> None:
    """A partition is finished and reset, and another job lands it again, before the first one deletes its files."""
    finished = previous_owner.land()
    previous_owner.files.add(KEY, finished.file)
    owner = follow(previous_owner, store, tmp_path)
    again = owner.land()
    previous_owner.files.delete(KEY)
    previous_owner.files.clear()
    assert landed_names(tmp_path) == [again.file]


def test_sweep_of_finished_partitions_leaves_files_landed_since(
    previous_owner: Owner, store: InMemoryStore, tmp_path: Path
) -> None:
    finished = previous_owner.land()
    previous_owner.coordinator.leases.complete(KEY)
    landed_since = []
    get = previous_owner.coordinator.view.get

    def reset_right_after(key: str) -> Partition | None:
        found = get(key)
        folder = finished.file.rpartition("/")[0]
        landed_since.append(f"{folder}/{file_name('5', 10**18)}")
        write_table(pa.table({"n": [1]}), landed_since[0])
        return found

    previous_owner.coordinator.view.get = reset_right_after  # type: ignore[method-assign]
    previous_owner.files.sweep_finished()
    assert landed_names(tmp_path) == landed_since


def _as_if_it_held(coordinator: SourceCoordinator, recorded: LandedBatch) -> SourceCoordinator:
    """Return a coordinator that does not know yet that it lost its lease."""
    token = token_of(recorded.file)
    assert token is not None
    coordinator.leases.fencing_token = lambda key: token  # type: ignore[method-assign]
    return coordinator
