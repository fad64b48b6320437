"""Parquet datasets on a real object store without renames, with failing requests and late previous owners."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyarrow import fs

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.spark import parquet_files, s3_objects, storage
from airflow_provider_coordination.spark.access import Access, S3RefusedError
from airflow_provider_coordination.spark.delivery import DeliveryError
from airflow_provider_coordination.spark.files import Claim, MissingFileError
from airflow_provider_coordination.spark.landed_identity import as_landed, file_name
from airflow_provider_coordination.spark.sink_settings import MAIN
from airflow_provider_coordination.spark.sinks.parquet import ParquetSink
from airflow_provider_coordination.spark.storage import open_files
from tests.support.faulty_s3 import Fault, FaultyS3
from tests.support.s3_server import OPEN_BUCKET, S3Server
from tests.support.sinks import an_attempt
from tests.support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.share(0.3)


BATCH = "shard-1-abc"
FOLDER = f"clicks/{BATCH}"
PUBLISHED = rf"PUT /[^/]+/lake/{BATCH}\.parquet"


@pytest.fixture
def network(s3: S3Server) -> Iterator[FaultyS3]:
    with FaultyS3(s3.settings) as network:
        yield network


@pytest.fixture
def root(s3_bucket: str) -> str:
    return f"s3://{s3_bucket}/lake"


class Owner:
    """One owner of the partition, on a machine of its own.

    :param values: what it makes of the batch; None publishes what was landed.
    """

    def __init__(
        self,
        root: str,
        aws: AwsSettings,
        token: int = 1,
        values: list[int] | None = None,
        *,
        redeliver: bool = False,
        landed_under: int = 1,
    ) -> None:
        self.root, self.access = root, Access(((root, aws),))
        self.sink = ParquetSink(name=MAIN, path=root, access=self.access)
        self.landed = self.sink.landed_delivery(keep=False)
        self.values = values
        file = f"{root}/_landing/{FOLDER}/{file_name('5', token)}"
        size = parquet_files.write_table(as_landed(pa.table({"n": [1, 2]}), BATCH), file, self.access)
        self.attempt = an_attempt(
            BATCH, token, set_number=token, redeliver=redeliver, file=file, file_bytes=size, fencing_token=landed_under
        )

    def prepare(self) -> None:
        if self.values is None:
            self.landed.prepare([self.attempt], [MAIN])
        else:
            self.sink.prepare([self.attempt], ReachedRows(self.values, self.access))

    def commit(self) -> None:
        if self.values is None:
            self.landed.commit(MAIN, [self.attempt])
        else:
            self.sink.commit([self.attempt])

    def deliver(self) -> None:
        self.sink.sweep({FOLDER: self.attempt.fencing_token})
        self.prepare()
        self.commit()
        self.sink.discard([self.attempt])

    @property
    def visible(self) -> list[int] | None:
        file = f"{self.root}/{BATCH}.parquet"
        if not storage.exists(file, self.access):
            return None
        numbers: list[int] = parquet_files.read_table(file, access=self.access)["n"].to_pylist()
        return numbers

    @property
    def leftovers(self) -> list[str]:
        return storage.files_below(f"{self.root}/_staging", self.access)


class ReachedRows:
    """The rows of a batch; see `Rows`."""

    schema = pa.schema([pa.field("n", pa.int64())])

    def __init__(self, values: list[int], access: Access) -> None:
        self._values, self._access = values, access

    def count(self, batch_id: str) -> int:
        return len(self._values)

    def write(self, batch_ids: Any, folder: str) -> dict[str, int]:
        file = f"{folder}/part-0.parquet"
        return {file: parquet_files.write_table(pa.table({"n": self._values}, self.schema), file, self._access)}


def uploads(s3: S3Server, bucket: str) -> list[str]:
    answer = s3.client().list_multipart_uploads(Bucket=bucket)
    return [each["Key"] for each in answer.get("Uploads", [])]


# What is delivered


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
@pytest.mark.parametrize("values", [None, [1, 2]], ids=["landed", "made"])
def test_commit_shows_the_batch_and_removes_prepared_files(
    s3: S3Server, root: str, values: list[int] | None, scheme: str
) -> None:
    owner = Owner(root.replace("s3:", f"{scheme}:"), s3.settings, values=values)
    owner.deliver()
    assert owner.visible == [1, 2] and owner.leftovers == []


def test_published_batch_keeps_its_landed_file_until_the_checkpoint(s3: S3Server, root: str) -> None:
    owner = Owner(root, s3.settings)
    owner.deliver()
    assert storage.file_size(owner.attempt.file, owner.access) == owner.attempt.batch.file_bytes


def test_delivery_creates_no_folder_objects(s3: S3Server, s3_bucket: str, root: str) -> None:
    owner = Owner(root, s3.settings, values=[3])
    owner.sink.check()
    owner.deliver()
    keys = [each["Key"] for each in s3.client().list_objects_v2(Bucket=s3_bucket)["Contents"]]
    [ledger] = [key for key in keys if "/_ledger/" in key]
    assert ledger.endswith(".json")
    assert [key for key in keys if "_landing" not in key and key != ledger] == [f"lake/{BATCH}.parquet"]


def test_rejected_delivery_is_replaced(s3: S3Server, root: str) -> None:
    Owner(root, s3.settings, values=[3]).deliver()
    again = Owner(root, s3.settings, token=2, values=[], redeliver=True)
    again.deliver()
    assert again.visible == []


def test_published_file_serves_as_the_landed_file(s3: S3Server, root: str) -> None:
    Owner(root, s3.settings).deliver()
    again = Owner(root, s3.settings, token=2, redeliver=True)
    storage.delete_file(again.attempt.file, again.access)
    again.deliver()
    assert again.visible == [1, 2]
    assert storage.file_size(again.attempt.file, again.access) == again.attempt.batch.file_bytes


# Former owners


def test_previous_owner_publishes_nothing_without_its_landed_file(s3: S3Server, root: str) -> None:
    former = Owner(root, s3.settings)
    former.prepare()
    storage.delete_file(former.attempt.file, former.access)
    with pytest.raises(MissingFileError, match="is gone"):
        former.commit()
    assert former.visible is None


def test_sweep_removes_staged_files_and_prevents_their_publication(s3: S3Server, root: str) -> None:
    former = Owner(root, s3.settings, values=[3])
    former.prepare()
    former.sink.sweep({FOLDER: 2})
    with pytest.raises(DeliveryError, match="is gone or incomplete"):
        former.commit()
    assert former.visible is None


def while_held(network: FaultyS3, former: Owner, act: Callable[[], None]) -> Exception | None:
    """Let a former owner commit, and something happen while its request is on the way; return what it raised."""
    held = network.make(PUBLISHED, Fault.HELD)
    raised: list[Exception] = []

    def commit() -> None:
        try:
            former.commit()
        except (CoordinationError, OSError) as error:
            raised.append(error)

    former.prepare()
    thread = threading.Thread(target=commit)
    thread.start()
    assert held.reached.wait(PATIENCE_SECONDS)
    act()
    held.let_through.set()
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()
    return raised[0] if raised else None


@pytest.mark.parametrize("made", [[3, 4], []], ids=["rows", "no rows"])
def test_late_request_changes_nothing_of_the_next_delivery(
    s3: S3Server, network: FaultyS3, root: str, made: list[int]
) -> None:
    former = Owner(root, network.settings, values=[-1])
    following = Owner(root, s3.settings, token=2, values=made)
    assert while_held(network, former, following.deliver) is None, "it is in: passed over"
    assert following.visible == made


def test_late_request_replaces_nothing_of_a_later_lease(s3: S3Server, network: FaultyS3, root: str) -> None:
    Owner(root, s3.settings, values=[0]).deliver()
    former = Owner(root, network.settings, token=2, values=[-1], redeliver=True)
    following = Owner(root, s3.settings, token=3, values=[3], redeliver=True)
    error = while_held(network, former, following.deliver)
    assert isinstance(error, MissingFileError) and "under a later lease, with token 3; this lease has token 2" in str(
        error
    )
    assert following.visible == [3]


def test_next_owner_replaces_a_concurrent_replacement(s3: S3Server, network: FaultyS3, root: str) -> None:
    Owner(root, s3.settings, values=[0]).deliver()
    following = Owner(root, network.settings, token=3, values=[3], redeliver=True)
    former = Owner(root, s3.settings, token=2, values=[-1], redeliver=True)
    assert while_held(network, following, former.deliver) is None
    assert following.visible == [3]


# Requests that go wrong


@pytest.mark.parametrize("replaces", [False, True])
@pytest.mark.parametrize("fault", [Fault.CUT, Fault.UNAVAILABLE, Fault.LOST])
@pytest.mark.parametrize("request_of", ["PUT .*part-0", "PUT .*_manifest", "GET .*_manifest", PUBLISHED, "POST "])
def test_failed_request_is_retried_without_loss_or_duplicates(
    s3: S3Server, network: FaultyS3, root: str, request_of: str, fault: Fault, replaces: bool
) -> None:
    if replaces:
        Owner(root, s3.settings, values=[0]).deliver()
    trouble = network.make(request_of, fault)
    owner = Owner(root, network.settings, token=2, values=[1, 2], redeliver=replaces)
    owner.deliver()
    assert trouble.left == 0, "it happened"
    assert owner.visible == [1, 2] and owner.leftovers == []


@pytest.mark.parametrize("fault", [Fault.CUT, Fault.UNAVAILABLE, Fault.LOST])
def test_batch_with_failing_publication_is_whole_or_absent(
    s3: S3Server, network: FaultyS3, root: str, fault: Fault
) -> None:
    network.make(PUBLISHED, fault, times=network.settings.max_attempts)
    owner = Owner(root, network.settings, values=[1, 2])
    owner.prepare()
    with pytest.raises(OSError, match=BATCH):
        owner.commit()
    assert owner.visible == ([1, 2] if fault is Fault.LOST else None), "the store did what it could not answer"
    following = Owner(root, s3.settings, token=2, values=[1, 2])
    following.deliver()
    assert following.visible == [1, 2] and following.leftovers == []


# Large files


def test_copies_in_a_bucket_run_in_parallel(network: FaultyS3, root: str) -> None:
    access = Access(((root, network.settings),))
    files = [f"{root}/_landing/{n}" for n in range(3)]
    for file in files:
        storage.write_text(file, file, access)
    slow = network.make("PUT .*/new/part-0.parquet", Fault.HELD)
    with ThreadPoolExecutor(1) as pool:
        copying = pool.submit(storage.link_files, files, f"{root}/new", access)
        assert slow.reached.wait(PATIENCE_SECONDS)
        until(lambda: len(storage.files_below(f"{root}/new", access)) >= 2)
        assert len(storage.files_below(f"{root}/new", access)) == 2
        slow.let_through.set()
        copies = copying.result(PATIENCE_SECONDS)
    assert [storage.read_text(copy, access) for copy in copies] == files


def test_failed_copy_leaves_no_other_copy_in_progress(network: FaultyS3, root: str) -> None:
    access = Access(((root, network.settings),))
    storage.write_text(f"{root}/_landing/0", "there", access)
    slow = network.make("PUT .*/new/part-0.parquet", Fault.HELD)
    with ThreadPoolExecutor(1) as pool:
        copying = pool.submit(
            storage.link_files, [f"{root}/_landing/0", f"{root}/_landing/gone"], f"{root}/new", access
        )
        assert slow.reached.wait(PATIENCE_SECONDS)
        assert not copying.done()
        slow.let_through.set()
        with pytest.raises(MissingFileError):
            copying.result(PATIENCE_SECONDS)
    assert len(storage.files_below(f"{root}/new", access)) == 1


def test_small_file_is_read_by_one_request(network: FaultyS3, root: str) -> None:
    access, rows = Access(((root, network.settings),)), pa.table({"n": [1, 2]})
    parquet_files.write_table(rows, f"{root}/_landing/a.parquet", access)
    network.requests.clear()
    assert parquet_files.read_small(f"{root}/_landing/a.parquet", access).equals(rows)
    assert len(network.requests) == 1


@pytest.fixture
def parts() -> Iterator[None]:
    """Let every file be published in parts."""
    with patch.object(s3_objects, "SINGLE_PUT_BYTES", 0):
        yield


@pytest.mark.usefixtures("parts")
def test_large_file_is_published_in_parts_once(s3: S3Server, s3_bucket: str, root: str) -> None:
    first = Owner(root, s3.settings, values=[1, 2])
    first.deliver()
    late = Owner(root, s3.settings, token=2, values=[-1])
    late.prepare()
    source = storage.files_below(late.sink.staging(late.attempt), late.access)
    storage.publish(
        next(file for file in source if file.endswith(".parquet")),
        f"{root}/{BATCH}.parquet",
        claim=Claim(fencing_token=2, set_id="x"),
        access=late.access,
    )
    assert first.visible == [1, 2] and uploads(s3, s3_bucket) == []


@pytest.mark.usefixtures("parts")
def test_upload_without_its_source_is_aborted(s3: S3Server, s3_bucket: str, network: FaultyS3, root: str) -> None:
    former = Owner(root, network.settings)
    held = network.make(r"PUT .*partNumber=1", Fault.HELD)
    former.prepare()
    with ThreadPoolExecutor(1) as pool:
        committing = pool.submit(former.commit)
        assert held.reached.wait(PATIENCE_SECONDS)
        storage.delete_file(former.attempt.file, Access(((root, s3.settings),)))
        held.let_through.set()
        with pytest.raises(MissingFileError, match="is gone"):
            committing.result(PATIENCE_SECONDS)
    assert former.visible is None and uploads(s3, s3_bucket) == []


def test_next_job_aborts_old_dead_uploads_only(s3: S3Server, s3_bucket: str, root: str) -> None:
    client = s3.client()
    client.create_multipart_upload(Bucket=s3_bucket, Key=f"lake/{BATCH}.parquet")
    client.create_multipart_upload(Bucket=s3_bucket, Key="elsewhere/x.parquet")
    sink = Owner(root, s3.settings).sink
    sink.check()
    assert sorted(uploads(s3, s3_bucket)) == ["elsewhere/x.parquet", f"lake/{BATCH}.parquet"]
    with patch.object(s3_objects, "DEAD_AFTER", timedelta(days=-1)):
        sink.check()
    assert uploads(s3, s3_bucket) == ["elsewhere/x.parquet"]


# Access


def test_unwritable_dataset_is_named_by_field_without_secrets(s3: S3Server) -> None:
    aws = s3.settings_of("denied", "denied-secret")
    sink = ParquetSink(name=MAIN, path=f"s3://{OPEN_BUCKET}/lake", access=Access(((f"s3://{OPEN_BUCKET}/lake", aws),)))
    with pytest.raises(ConfigurationError, match=r"ParquetDataset 'main': field 'path' is 's3://open/lake', which can"):
        sink.check()


def test_missing_connection_falls_back_to_the_sdk_configuration(
    s3: S3Server, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws = s3.settings
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", str(aws.access_key_id))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", str(aws.secret_access_key))
    monkeypatch.setenv("AWS_DEFAULT_REGION", str(aws.region))
    monkeypatch.setenv("AWS_ENDPOINT_URL", str(aws.endpoint_url))
    for cached in (storage._s3_session, storage._s3_client, storage._s3_objects):
        monkeypatch.setattr(storage, cached.__name__, cache(cached.__wrapped__))
    sink = ParquetSink(name=MAIN, path=root)
    sink.check()
    size = parquet_files.write_table(pa.table({"n": [1]}), f"{root}/a.parquet")
    assert storage.file_size(f"{root}/a.parquet", Access(((root, aws),))) == size


def test_process_opens_one_filesystem_per_access(s3: S3Server, root: str) -> None:
    access = Access(((root, s3.settings),))
    first, _ = open_files(f"{root}/a", access)
    again, _ = open_files(f"{root}/_landing/b", Access(((root, replace(s3.settings)),)))
    assert first is again and first.filesystem is again.filesystem


# Readers


@pytest.mark.parametrize("is_local", [False, True], ids=["bucket", "folder"])
def test_looping_reader_sees_each_batch_whole_or_absent(
    s3: S3Server, root: str, is_local: bool, tmp_path: Path
) -> None:
    root = str(tmp_path / "lake") if is_local else root
    access = Access(((root, s3.settings),))
    files, path = open_files(root, access)
    rows = 2000
    sink = ParquetSink(name=MAIN, path=root, access=access)

    def deliver(number: int) -> None:
        attempt = Owner(root, s3.settings, token=1).attempt
        attempt = replace(attempt, batch=replace(attempt.batch, batch_id=f"b-{number}"), set_id=f"b-{number}")
        for again in (False, True):
            one = replace(
                attempt,
                batch=replace(attempt.batch, redeliver=again),
                set_id=f"b-{number}.{again}",
                fencing_token=1 + again,
            )
            sink.prepare([one], ReachedRows([number] * rows, access))
            sink.commit([one])
            sink.discard([one])

    deliver(0)
    seen, done = 1, threading.Event()

    def read() -> None:
        nonlocal seen
        is_last = False
        while not is_last:
            is_last = done.is_set()
            there = files.filesystem.get_file_info(fs.FileSelector(path))  # no folder that goes at this moment
            names = [info.path for info in there if info.type == fs.FileType.File]
            table = ds.dataset(names, filesystem=files.filesystem, format="parquet").to_table(columns=["n"])
            counts = table.group_by("n").aggregate([("n", "count")]).to_pylist() if table.num_rows else []
            assert all(each["n_count"] == rows for each in counts), counts
            seen = max(seen, len(counts))

    with ThreadPoolExecutor(3) as pool:
        reading = pool.submit(read)
        try:
            for delivered in [pool.submit(deliver, number) for number in range(1, 40)]:
                delivered.result(PATIENCE_SECONDS)
        finally:
            done.set()
        reading.result(PATIENCE_SECONDS)
    assert seen == 40


# Many files at once


def files_of(root: str, aws: AwsSettings, *names: str) -> list[str]:
    """Write small files below a root; return their URIs."""
    access = Access(((root, aws),))
    for name in names:
        storage.write_text(f"{root}/{name}", name, access)
    return [f"{root}/{name}" for name in names]


FOLDERS = ["src/a", "src/b", "src/c", "src/never"]
NAMES = ["src/a/1", "src/a/2", "src/b/3/4", "src/bb/5", "src/c/6"]


@pytest.mark.parametrize(("page", "requests"), [(1000, 1), (2, 3), (1, 4 + 5)], ids=["one page", "some", "too many"])
def test_neighboring_folders_are_listed_together_if_cheaper(
    network: FaultyS3, root: str, page: int, requests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    files_of(root, network.settings, *NAMES)
    monkeypatch.setattr(s3_objects, "PAGE_OBJECTS", page)
    before = len(network.requests)
    found = dict(storage.files_in_folders(root, FOLDERS, Access(((root, network.settings),))))
    assert found == {
        "src/a": [f"{root}/src/a/1", f"{root}/src/a/2"],
        "src/b": [f"{root}/src/b/3/4"],
        "src/c": [f"{root}/src/c/6"],
        "src/never": [],
    }
    assert len(network.requests) - before == requests


def test_refused_listing_fails_each_of_its_folders(network: FaultyS3, root: str) -> None:
    network.make("GET .*list-type", Fault.FORBIDDEN, 99)
    found = dict(storage.files_in_folders(root, FOLDERS, Access(((root, network.settings),))))
    assert {name: type(result) for name, result in found.items()} == dict.fromkeys(FOLDERS, S3RefusedError)


@pytest.mark.parametrize("page", [1000, 2])
def test_files_are_deleted_by_one_request_per_page(
    network: FaultyS3, root: str, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = Access(((root, network.settings),))
    files = files_of(root, network.settings, *NAMES)
    monkeypatch.setattr(s3_objects, "PAGE_OBJECTS", page)
    before = len(network.requests)
    storage.delete_files([*files[:4], f"{root}/never-there"], access)
    assert len(network.requests) - before == -(-5 // page)
    monkeypatch.undo()
    assert storage.files_below(root, access) == files[4:]


def test_store_without_bulk_deletion_deletes_each_file(network: FaultyS3, root: str) -> None:
    access = Access(((root, network.settings),))
    files = files_of(root, network.settings, *NAMES)
    network.make("POST .*delete", Fault.UNKNOWN, 9)
    storage.delete_files(files[:2], access)
    before = len(network.requests)
    storage.delete_files(files[2:4], access)
    assert [each.partition(" ")[0] for each in network.requests[before:]] == ["DELETE", "DELETE"]
    assert storage.files_below(root, access) == files[4:]


def test_already_published_batch_is_not_combined_with_others(s3: S3Server, root: str) -> None:
    """Its first commit worked, and the store was away when that was to be written down."""
    access = Access(((root, s3.settings),))
    attempts = []
    for name in ("a", "b", "c"):
        file = f"{root}/_landing/clicks/{name}/{file_name('5', 1)}"
        rows = as_landed(pa.table({"n": [1], "_batch_id": [name]}), name)
        attempts.append(an_attempt(name, file=file, file_bytes=parquet_files.write_table(rows, file, access)))
    sink = ParquetSink(name=MAIN, path=root, access=access).landed_delivery(keep=False)
    sink.prepare(attempts[:1], [MAIN])
    sink.commit(MAIN, attempts[:1])
    prepared = sink.prepare(attempts, [MAIN])
    going = [replace(each, shared_file=getattr(prepared[each.batch_id], "shared_file", None)) for each in attempts]
    sink.commit(MAIN, going)
    assert [each.shared_file is None for each in going] == [True, False, False]
    batches = [
        batch
        for file in storage.files_below(root, access)
        if "/_" not in file
        for batch in parquet_files.read_table(file, access=access)["_batch_id"].to_pylist()
    ]
    assert sorted(batches) == ["a", "b", "c"]
