"""Kinds of sources: built-in ones, registered ones, and those with only a reader."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError
from airflow_provider_coordination.sources.item_kind import ItemKind
from airflow_provider_coordination.sources.items import PartitionProgress
from airflow_provider_coordination.sources.kinds import KINDS, SourceBatches, get_kind, inspect_partition, kind_of
from tests.support.distributions import install
from tests.support.partitions import NOW, a_partition

GROUP = "airflow_provider_coordination.sources"
TIDES = """
from airflow_provider_coordination.sources.source_kind import SourceKind
KIND = SourceKind("tides")
"""


@pytest.fixture
def register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], None]:
    """Install a distribution with one module that registers a kind by its `KIND`."""

    def registered(kind: str, module: str, text: str) -> None:
        install(tmp_path, module, GROUP, {kind: f"{module}:KIND"})
        (tmp_path / f"{module}.py").write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
        importlib.invalidate_caches()

    return registered


def test_package_kinds_need_no_central_list() -> None:
    assert KINDS.names() == ["dynamodb", "dynamodb_export", "dynamodb_streams", "jdbc", "kinesis", "opensearch", "s3"]
    assert [get_kind(name).name for name in KINDS.names()] == KINDS.names()


def test_partition_kind_follows_its_progress() -> None:
    assert kind_of({}) is None
    kind = kind_of(PartitionProgress(kind="s3", items=()).to_mapping())
    assert kind is get_kind("s3")


def test_kind_with_only_an_item_reader_needs_no_registration() -> None:
    kind = kind_of(PartitionProgress(kind="weather", items=({"key": "today"},)).to_mapping())
    assert isinstance(kind, ItemKind) and kind.name == "weather"


def test_another_distribution_registers_a_kind_with_custom_progress(
    register: Callable[[str, str, str], None],
) -> None:
    register("tides", "tides_of_test", TIDES)
    partition = a_partition("p", kind="tides", checkpoint="7")
    assert (inspect_partition(partition, NOW).position, SourceBatches().pending(partition.progress)) == ("7", [])


def test_unregistered_kind_names_what_to_install() -> None:
    with pytest.raises(
        ConfigurationError, match=r"kind of source 'sea' is not known; the known names are 'dynamodb', .*Install"
    ):
        get_kind("sea")
    with pytest.raises(SourceError, match="kind of source 'sea' is not registered; install the distribution that"):
        SourceBatches().pending({"kind": "sea", "checkpoint": "7"})
    assert not inspect_partition(a_partition("p", kind="sea", checkpoint="7"), NOW).is_readable


def test_unimportable_kind_names_its_distribution_and_cause(register: Callable[[str, str, str], None]) -> None:
    register("swell", "swell_of_test", "import a_library_that_is_missing")
    with pytest.raises(
        ConfigurationError, match=r"'swell = swell_of_test:KIND' of swell_of_test 1.0 cannot be imported: Mod"
    ):
        get_kind("swell")
    with pytest.raises(SourceError, match="cannot be imported: ModuleNotFoundError"):
        kind_of({"kind": "swell", "checkpoint": ""})
    assert not inspect_partition(a_partition("p", kind="swell", checkpoint=""), NOW).is_readable


def test_kind_passed_to_a_job_matches_partitions_by_name(tmp_path: Path) -> None:
    (tmp_path / "ebb_of_test.py").write_text(TIDES.replace("tides", "ebb"))
    sys.path.insert(0, str(tmp_path))
    try:
        kind = get_kind("ebb", "ebb_of_test:KIND")
    finally:
        sys.path.remove(str(tmp_path))
    assert kind_of({"kind": "ebb", "checkpoint": "7"}) is kind


def test_inspecting_partitions_needs_no_heavy_imports() -> None:
    program = (
        "import sys;"
        "from airflow_provider_coordination.sources.kinds import inspect_partition;"
        "from airflow_provider_coordination.sources.kinds import SourceBatches;"
        "from airflow_provider_coordination.sources.kinds import KINDS, get_kind;"
        "[get_kind(name).batches for name in KINDS.names()];"
        "print([name for name in ('pyarrow', 'pyspark', 'boto3', 'botocore') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
