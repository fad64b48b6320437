from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.landed import LandedBatch
from airflow_provider_coordination.spark.delivery import (
    MAIN,
    PublishLanded,
    check_folders,
    load_transform,
    sweep,
)
from airflow_provider_coordination.spark.landing import file_name
from airflow_provider_coordination.spark.storage import (
    MissingFileError,
    delete_folder,
    files_below,
    publish,
    safe_name,
    write_table,
)

FOLDER = "clicks/shard"
OLD_AND_NEW = [("orphan", 2), ("recorded", 1), ("own", 3), ("newer", 4)]


def a_batch(file: str) -> LandedBatch:
    return LandedBatch(
        batch_id="shard-1-abc",
        start="TRIM_HORIZON",
        end="9",
        file=file,
        records=1,
        bytes=1,
        is_last=False,
        read_until=None,
        fencing_token=1,
    )


@pytest.fixture
def landed(tmp_path: Path) -> LandedBatch:
    uri = str(tmp_path / "out" / "_landing" / FOLDER / file_name("TRIM_HORIZON", 1))
    write_table(pa.table({"n": [1, 2]}), uri)
    return a_batch(uri)


def test_publishing_moves_the_landed_file_to_its_batch_name(tmp_path: Path, landed: LandedBatch) -> None:
    PublishLanded(str(tmp_path / "out")).publish(MAIN, FOLDER, landed, 1)
    assert pq.read_table(tmp_path / "out" / "shard-1-abc.parquet").num_rows == 2
    assert not Path(landed.file).exists()


def test_what_is_published_is_counted(tmp_path: Path, landed: LandedBatch) -> None:
    prepared = PublishLanded(str(tmp_path / "out")).prepare(FOLDER, landed, 1, [MAIN])
    assert (prepared.records, prepared.unrouted) == ({MAIN: landed.records}, 0)


def test_publishing_again_finds_it_done(tmp_path: Path, landed: LandedBatch) -> None:
    sink = PublishLanded(str(tmp_path / "out"))
    for _ in range(3):
        sink.publish(MAIN, FOLDER, landed, 1)
    assert [path.name for path in (tmp_path / "out").glob("*.parquet")] == ["shard-1-abc.parquet"]


def test_a_landed_file_that_vanished_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="restore it, or reset its partition"):
        PublishLanded(str(tmp_path)).publish(MAIN, FOLDER, a_batch(str(tmp_path / "gone.parquet")), 1)


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


def test_the_sweep_takes_what_older_leases_left_and_progress_does_not_name(tmp_path: Path) -> None:
    root = tmp_path / "landing"
    names = {kind: str(root / FOLDER / file_name("5", token)) for kind, token in OLD_AND_NEW}
    for name in names.values():
        write_table(pa.table({"n": [1]}), name)
    assert sweep(str(root), FOLDER, keep={names["recorded"]}, fencing_token=3) == 1
    assert sorted(files_below(str(root))) == sorted([names["recorded"], names["own"], names["newer"]])


def test_the_sweep_knows_a_recorded_file_however_its_root_is_spelled(tmp_path: Path) -> None:
    name = str(tmp_path / FOLDER / file_name("5", 1))
    write_table(pa.table({"n": [1]}), name)
    assert sweep(f"file://{tmp_path}//", FOLDER, keep={name}, fencing_token=3) == 0


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
