"""Files and folders of a filesystem are checked, published and named."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark import files, parquet_files
from airflow_provider_coordination.spark.files import Files, MissingFileError
from airflow_provider_coordination.spark.storage import (
    check_writable,
    delete_folder,
    files_below,
    link_files,
    probe_rename,
    publish,
    safe_name,
)


def test_files_are_not_published_across_filesystems(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="put landing and dataset on one filesystem"):
        publish(str(tmp_path / "a"), "mock://elsewhere/b")


def test_folder_is_never_published(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match="is a folder; only files are published"):
        publish(str(tmp_path / "folder"), str(tmp_path / "target"))
    assert (tmp_path / "folder").is_dir()


def test_empty_path_never_means_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for act in (lambda: publish("", str(tmp_path / "target")), lambda: delete_folder("")):
        with pytest.raises(ValueError, match="the path is empty"):
            act()
    assert (tmp_path / "here").is_dir()


def test_checking_folders_leaves_nothing_behind(tmp_path: Path) -> None:
    for name in ("out", "landing"):
        check_writable("field 'path'", str(tmp_path / name))
    probe_rename(str(tmp_path / "landing"), str(tmp_path / "out"))
    assert files_below(str(tmp_path)) == []


def test_folder_on_another_filesystem_is_no_rename_target(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="put landing and dataset on one filesystem"):
        probe_rename(str(tmp_path), "mock://elsewhere/b")


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
def test_unwritable_folder_is_named_by_its_field_as_written(tmp_path: Path, path: str, reason: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to("/nowhere/at/all")
    (tmp_path / "to-a-file").symlink_to(tmp_path / "file")
    written = path.format(folder=tmp_path)
    with pytest.raises(ConfigurationError) as error:
        check_writable("field 'path'", written)
    said = str(error.value)
    assert said.startswith(f"field 'path' is '{written}', which cannot be written: ")
    assert reason.format(folder=tmp_path) in said
    assert said.endswith("; correct the path, or let the user who runs the job write there")


def test_linked_dataset_folder_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    check_writable("field 'path'", str(tmp_path / "link"))
    check_writable("field 'landing_path'", str(tmp_path / "link" / "_landing"))
    probe_rename(str(tmp_path / "link" / "_landing"), str(tmp_path / "link"))


def test_safe_names_differ_for_different_texts() -> None:
    names = {safe_name(text) for text in ("a|b", "a:b", "a-b", "", "../x", "ä")}
    assert len(names) == 6
    assert all("/" not in name and ":" not in name and not name.startswith(".") for name in names)


def test_safe_names_differ_in_other_scripts_and_stay_short() -> None:
    texts = ["öèýš", "öžèê", "注文", "訂單", "k" * 1024, "k" * 1023 + "j", "é" * 512]
    names = {safe_name(text) for text in texts}
    assert len(names) == len(texts)
    assert all(len(name.encode()) <= 100 for name in names)
    assert all(len(name.rpartition("-")[2]) == 32 for name in names), "128 bits"


# Second names


def test_linked_file_is_not_read_and_looks_newly_written(tmp_path: Path) -> None:
    file = tmp_path / "landed.parquet"
    file.write_text("rows")
    os.utime(file, (0, 0))
    [second] = map(Path, link_files([str(file)], str(tmp_path / "table")))
    assert second.samefile(file) and second.stat().st_mtime > 0


def test_missing_links_copy_the_file_and_keep_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*names: str) -> None:
        raise OSError(errno.EXDEV, "cross-device link")

    monkeypatch.setattr(files.os, "link", refused)
    file = tmp_path / "landed.parquet"
    file.write_text("rows")
    [second] = map(Path, link_files([str(file)], str(tmp_path / "table")))
    assert second.read_text() == file.read_text() == "rows" and not second.samefile(file)


def test_link_does_not_replace_an_existing_file(tmp_path: Path) -> None:
    file, other = tmp_path / "landed.parquet", tmp_path / "part-0.parquet"
    file.write_text("rows")
    other.write_text("others")
    with pytest.raises(FileExistsError):
        link_files([str(file)], str(tmp_path))
    assert (file.read_text(), other.read_text()) == ("rows", "others")


def test_missing_file_gets_no_link(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="is gone"):
        link_files([str(tmp_path / "gone.parquet")], str(tmp_path / "table"))


def test_reading_files_in_order_names_the_first_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "SMALL_BYTES", 1_000)
    sizes = {}
    for name, count in (("small", 2), ("large", 1_000), ("other", 1)):
        table = pa.table({"n": range(count), "file": [name] * count})
        file = str(tmp_path / name)
        sizes[file] = parquet_files.write_table(table, file)
    assert [size > 1_000 for size in sizes.values()] == [False, True, False]

    rows = parquet_files.read_tables(sizes, ["file", "n"])

    assert rows.column_names == ["file", "n"]
    assert rows.to_pylist() == [
        {"file": name, "n": n} for name, count in (("small", 2), ("large", 1_000), ("other", 1)) for n in range(count)
    ]
    for name in ("large", "other"):
        (tmp_path / name).unlink()
    with pytest.raises(FileNotFoundError, match="large"):
        parquet_files.read_tables(sizes)


class FolderRemovingFilesystem(fs.LocalFileSystem):
    """Another thread removes a folder as an empty one whenever it was just created."""

    removals = 0

    def create_dir(self, path: str, *, recursive: bool = True) -> None:
        super().create_dir(path, recursive=recursive)
        if self.removals:
            self.removals -= 1
            Path(path).rmdir()


@pytest.mark.parametrize("act", ["write", "new_file", "copy", "link"])
def test_folder_removed_by_another_thread_is_recreated(tmp_path: Path, act: str) -> None:
    filesystem = FolderRemovingFilesystem()
    local, source, target = Files(filesystem), str(tmp_path / "source"), str(tmp_path / "folder" / "file")
    local.write(source, b"rows")
    filesystem.removals = files.FOLDER_TRIES - 1
    if act == "write":
        local.write(target, b"rows")
    elif act == "new_file":
        with local.new_file(target) as stream:
            stream.write(b"rows")
    else:
        getattr(local, act)(source, target)
    assert local.read(target) == b"rows" and filesystem.removals == 0
    filesystem.removals = files.FOLDER_TRIES
    with pytest.raises(FileNotFoundError):
        local.write(str(tmp_path / "other" / "file"), b"rows")


def test_floats_have_neither_bounds_nor_a_dictionary(tmp_path: Path) -> None:
    rows = pa.table({"x": [1.0, 1.0], "y": pa.array([0.0, -0.0], pa.float32()), "n": [1, 1]})
    files = [str(tmp_path / "whole.parquet"), str(tmp_path / "pieces.parquet")]
    parquet_files.write_table(rows, files[0])
    with parquet_files.TableWriter(files[1]) as writer:
        writer.write(rows)
    for file in files:
        columns = [pq.read_metadata(file).row_group(0).column(n) for n in range(3)]
        assert [column.is_stats_set for column in columns] == [False, False, True]
        assert [column.has_dictionary_page for column in columns] == [False, False, True]
