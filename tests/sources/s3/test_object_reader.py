"""A reader opens exactly the listed version of a file, and can be sent to executors."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.items import (
    Item,
    ItemGoneError,
    ItemUnreadableError,
)
from airflow_provider_coordination.sources.kinds import ReadsSettings, reader_of
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.sources.s3.listing import listing_of
from airflow_provider_coordination.sources.s3.reader import ObjectReader


def reader(folder: Path, **format: Any) -> ObjectReader:
    settings = S3Objects(paths=(str(folder),)).to_mapping()
    name = format.pop("name", "text")
    return ObjectReader.from_mapping({**settings, "format": name, "format_options": format})


def items(folder: Path) -> list[Item]:
    return [each.to_item() for page in listing_of(str(folder), AwsSettings()).pages() for each in page.found]


def read(from_reader: ObjectReader, item: Item, position: str = "") -> list[Any]:
    return [row for page in from_reader.read(item, position) for row in page.records.to_pylist()]


def test_file_is_read_and_records_name_their_origin(tmp_path: Path) -> None:
    (tmp_path / "a b%41.txt").write_text("1\n2\n")
    [item] = items(tmp_path)
    assert read(reader(tmp_path), item) == [{"data": b"1"}, {"data": b"2"}]
    assert read(reader(tmp_path), item, "2") == [{"data": b"2"}]
    assert read(reader(tmp_path), item, "4") == []
    assert reader(tmp_path).origin(item) == f"{tmp_path}/a b%41.txt"


def test_parquet_file_is_read(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1, 2, 3]}), tmp_path / "a.parquet", row_group_size=2)
    [item] = items(tmp_path)
    assert [row["n"] for row in read(reader(tmp_path, name="parquet"), item, "1")] == [2, 3]


def test_file_changed_since_its_listing_is_gone(tmp_path: Path) -> None:
    for name in ("deleted", "larger", "later"):
        (tmp_path / name).write_text("1\n")
    deleted, larger, later = items(tmp_path)
    (tmp_path / "deleted").unlink()
    (tmp_path / "larger").write_text("1\n2\n")
    os.utime(tmp_path / "later", ns=(1, 1))
    with pytest.raises(ItemGoneError, match="deleted does not exist any more"):
        read(reader(tmp_path), deleted)
    for item in (larger, later):
        with pytest.raises(ItemGoneError, match="was replaced since it was listed"):
            read(reader(tmp_path), item)


def test_damaged_file_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(b"\x1f\x8b no gzip")
    (tmp_path / "b.parquet").write_bytes(b"no Parquet")
    damaged, no_parquet = items(tmp_path)
    with pytest.raises(ItemUnreadableError, match="it is not complete gzip"):
        read(reader(tmp_path), damaged)
    with pytest.raises(ItemUnreadableError, match="it is not complete Parquet"):
        read(reader(tmp_path, name="parquet"), no_parquet)


def test_used_reader_survives_pickling(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    [item] = items(tmp_path)
    settings = S3Objects(paths=(str(tmp_path),)).to_mapping()
    made = reader_of(ReadsSettings(kind=S3Objects.kind, settings={**settings, "format": "csv"}))
    assert isinstance(made, ObjectReader)
    assert read(made, item) == read(pickle.loads(pickle.dumps(made)), item) == [{"id": "1"}]


def test_pickled_reader_needs_no_msgspec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("1\n")
    [item] = items(tmp_path)
    pickled = pickle.dumps(reader(tmp_path))
    monkeypatch.setitem(sys.modules, "msgspec", None)
    assert read(pickle.loads(pickled), item) == [{"data": b"1"}]


def test_settings_decide_actions_after_delivery(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n")
    found = items(tmp_path)
    keeping = reader(tmp_path)
    assert keeping.waits_for(found) is None
    keeping.delivered(found)
    assert (tmp_path / "a").exists()
    settings = S3Objects(paths=(str(tmp_path),), delete_on_success=True).to_mapping()
    ObjectReader.from_mapping(settings).delivered(found)
    assert not (tmp_path / "a").exists()
    waiting = ObjectReader.from_mapping({**settings, "wait_for": "_SUCCESS"}).waits_for(found)
    assert waiting is not None and "_SUCCESS does not exist yet" in waiting.reason


def test_invalid_settings_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="field 'format' must be one of"):
        ObjectReader.from_mapping({"paths": ["/data"], "format": "xml"})
    with pytest.raises(ConfigurationError, match="S3Objects: unknown field 'path'"):
        ObjectReader.from_mapping({"path": "/data"})
