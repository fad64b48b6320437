from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.landed import LandedBatch
from airflow_provider_coordination.spark.delivery import (
    MAIN,
    Attempt,
    DeliveryError,
    PublishLanded,
    check_folders,
    ensure_landed,
    load_transform,
)
from airflow_provider_coordination.spark.landed_identity import as_landed, file_name, under_token
from airflow_provider_coordination.spark.storage import (
    MissingFileError,
    delete_folder,
    files_below,
    publish,
    safe_name,
    write_table,
)

FOLDER = "clicks/shard"
BATCH = "shard-1-abc"
LANDED = as_landed(pa.table({"n": [1, 2]}), BATCH)


def an_attempt(file: str, file_bytes: int = 0, token: int = 1, **changes: Any) -> Attempt:
    batch = LandedBatch(
        batch_id=BATCH,
        start="TRIM_HORIZON",
        end="9",
        file=file,
        file_bytes=file_bytes,
        records=2,
        bytes=1,
        is_last=False,
        read_until=None,
        fencing_token=1,
    )
    return Attempt(
        batch=replace(batch, **changes), file=file, folder=FOLDER, set_id=f"{BATCH}.{token}", fencing_token=token
    )


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def landed(out: Path) -> Attempt:
    uri = str(out / "_landing" / FOLDER / file_name("TRIM_HORIZON", 1))
    return an_attempt(uri, write_table(LANDED, uri))


def deliver(sink: PublishLanded, attempt: Attempt) -> None:
    sink.prepare(attempt, [MAIN])
    sink.publish(MAIN, attempt)


def again(attempt: Attempt, token: int = 2) -> Attempt:
    """The delivery that follows once the one before was rejected, by another owner."""
    return replace(
        attempt, batch=replace(attempt.batch, redeliver=True), set_id=f"{BATCH}.{token}", fencing_token=token
    )


def published(out: Path) -> list[int]:
    return [n for file in out.glob("*.parquet") for n in pq.read_table(file)["n"].to_pylist()]


def test_publishing_moves_the_landed_file_to_its_batch_name(out: Path, landed: Attempt) -> None:
    deliver(PublishLanded(str(out)), landed)
    assert pq.read_table(out / "shard-1-abc.parquet").num_rows == 2
    assert not Path(landed.file).exists()


def test_what_is_published_is_counted(out: Path, landed: Attempt) -> None:
    prepared = PublishLanded(str(out)).prepare(landed, [MAIN])
    assert (prepared.records, prepared.unrouted) == ({MAIN: 2}, 0)


@pytest.mark.parametrize("keep", [False, True])
def test_publishing_again_finds_it_done(out: Path, landed: Attempt, keep: bool) -> None:
    for _ in range(3):
        deliver(PublishLanded(str(out), keep=keep), landed)
    assert [path.name for path in out.glob("*.parquet")] == ["shard-1-abc.parquet"]


def test_a_landed_file_that_vanished_is_an_error_that_says_what_to_do(out: Path) -> None:
    with pytest.raises(DeliveryError, match=r"gone\.parquet is gone: restore it, or reset its partition"):
        PublishLanded(str(out)).prepare(an_attempt(str(out / "gone.parquet")), [MAIN])


def test_a_landed_file_that_was_cut_in_half_is_never_published(out: Path, landed: Attempt) -> None:
    content = Path(landed.file).read_bytes()
    Path(landed.file).write_bytes(content[: len(content) // 2])
    with pytest.raises(DeliveryError, match=r"has \d+ bytes, and \d+ were landed: restore it"):
        deliver(PublishLanded(str(out)), landed)
    assert published(out) == []


def test_what_was_published_serves_as_the_landed_file_that_was_renamed(out: Path, landed: Attempt) -> None:
    deliver(PublishLanded(str(out)), landed)
    assert ensure_landed(again(landed), str(out)) == landed.file
    assert pq.read_table(landed.file).equals(LANDED) and published(out) == [1, 2]


def test_what_a_transform_made_of_a_batch_never_serves_as_its_landed_file(out: Path, landed: Attempt) -> None:
    Path(landed.file).unlink()
    size = write_table(pa.table({"n": [1, 2]}), str(out / "shard-1-abc.parquet"))
    with pytest.raises(DeliveryError, match="is gone: restore it"):
        ensure_landed(an_attempt(landed.file, size), str(out))


@pytest.mark.parametrize("keep", [False, True])
def test_a_rejected_delivery_is_replaced_though_its_landed_file_was_renamed(
    out: Path, landed: Attempt, keep: bool
) -> None:
    deliver(PublishLanded(str(out)), landed)
    deliver(PublishLanded(str(out), keep=keep), again(landed))
    assert published(out) == [1, 2]


def test_a_former_owner_publishes_nothing_once_its_file_is_another_leases(out: Path, landed: Attempt) -> None:
    former = PublishLanded(str(out))
    former.prepare(landed, [MAIN])
    publish(landed.file, under_token(landed.file, 2))
    with pytest.raises(MissingFileError, match="is gone"):
        former.publish(MAIN, landed)
    assert published(out) == []


def test_a_former_owner_publishes_nothing_once_its_copy_is_swept(out: Path, landed: Attempt) -> None:
    former, next_owner = PublishLanded(str(out), keep=True), PublishLanded(str(out), keep=True)
    former.prepare(landed, [MAIN])
    next_owner.sweep(FOLDER, 2)
    with pytest.raises(MissingFileError, match="is gone"):
        former.publish(MAIN, landed)
    assert published(out) == []


def test_a_sweep_leaves_what_later_leases_staged(out: Path, landed: Attempt) -> None:
    later = replace(landed, fencing_token=12)
    sink = PublishLanded(str(out), keep=True)
    sink.prepare(later, [MAIN])
    sink.sweep(FOLDER, 3)
    sink.publish(MAIN, later)
    assert published(out) == [1, 2]


def test_files_are_not_published_across_filesystems(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="put landing and output on one filesystem"):
        publish(str(tmp_path / "a"), "mock://elsewhere/b")


def test_a_folder_is_never_published(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match="is a folder; only files are published"):
        publish(str(tmp_path / "folder"), str(tmp_path / "target"))
    assert (tmp_path / "folder").is_dir()


def test_an_empty_path_never_means_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for act in (lambda: publish("", str(tmp_path / "target")), lambda: delete_folder("")):
        with pytest.raises(ValueError, match="an empty path"):
            act()
    assert (tmp_path / "here").is_dir()


def test_checking_folders_leaves_nothing_behind(tmp_path: Path) -> None:
    check_folders({name: str(tmp_path / name) for name in ("out", "copy", "landing")}, renaming=True)
    assert files_below(str(tmp_path)) == []


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/proc/lake", "Cannot create directory '/proc/lake'"),
        ("{folder}/file/out", "Cannot create directory '{folder}/file/out'"),
        ("{folder}/dangling", "it is a link to '/nowhere/at/all'; "),
        ("{folder}/to-a-file", "it is a link to '{folder}/file'; "),
        ("nope://x/y", "'nope://x/y' is not a path that can be written: "),
    ],
)
def test_a_folder_that_cannot_be_written_is_named_by_its_field_as_it_was_written(
    tmp_path: Path, path: str, reason: str
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to("/nowhere/at/all")
    (tmp_path / "to-a-file").symlink_to(tmp_path / "file")
    written = path.format(folder=tmp_path)
    with pytest.raises(ConfigurationError) as error:
        check_folders({"field 'output_path'": written, "landing": f"{written}/_landing"}, renaming=True)
    said = str(error.value)
    assert said.startswith(f"field 'output_path' is '{written}', which cannot be written: ")
    assert reason.format(folder=tmp_path) in said
    assert said.endswith("; correct the path, or let the user who runs the job write there")


def test_a_dataset_folder_that_is_a_link_to_another_folder_will_do(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    check_folders({"out": str(tmp_path / "link"), "landing": str(tmp_path / "link" / "_landing")}, renaming=True)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:clean", "No module named 'no_such_module'; ship its module with 'py_files'"),
        ("json:no_such_function", "cannot be imported: AttributeError"),
        ("json:__name__", "is not a function"),
    ],
)
def test_a_transform_that_cannot_be_used_is_named(name: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load_transform(name)


def test_safe_names_differ_where_their_texts_do() -> None:
    names = {safe_name(text) for text in ("a|b", "a:b", "a-b", "", "../x", "ä")}
    assert len(names) == 6
    assert all("/" not in name and ":" not in name and not name.startswith(".") for name in names)


def test_safe_names_of_other_scripts_differ_and_long_ones_fit_a_folder() -> None:
    texts = ["öèýš", "öžèê", "注文", "訂單", "k" * 1024, "k" * 1023 + "j", "é" * 512]
    names = {safe_name(text) for text in texts}
    assert len(names) == len(texts)
    assert all(len(name.encode()) <= 100 for name in names)
    assert all(len(name.rpartition("-")[2]) == 32 for name in names), "128 bits"
