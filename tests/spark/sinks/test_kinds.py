"""Sinks are found by kind: those of the package by their module, others by their settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.sink_settings import SinkSettings
from airflow_provider_coordination.spark.sinks import SINKS, make_sinks
from airflow_provider_coordination.spark.sinks.parquet import ParquetSink
from tests.support.sinks import AT_LEAST_ONCE
from tests.support.sinks import SINKS as UNDER_TEST


def settings(kind: str, implementation: str | None = None) -> SinkSettings:
    return SinkSettings(name="main", kind=kind, location="/lake", implementation=implementation)


def test_every_package_kind_runs_the_contract_suite() -> None:
    assert set(SINKS.names()) == {name.partition(",")[0] for name in UNDER_TEST} | AT_LEAST_ONCE


def test_at_least_once_kinds_declare_it() -> None:
    assert {name for name in SINKS.names() if not SINKS.load(name).is_exactly_once} == AT_LEAST_ONCE


def test_sinks_are_built_from_settings_in_order() -> None:
    assert make_sinks([settings("parquet")]) == [ParquetSink(name="main", path="/lake")]


def test_external_kind_is_built_by_its_implementation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_sinks.py").write_text(
        "from airflow_provider_coordination.spark.sinks import SinkKind\n"
        "QUEUE = SinkKind(make=lambda settings: ('queue', settings.location))\n"
        "OTHER = 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert make_sinks([settings("queue", "their_sinks:QUEUE")]) == [("queue", "/lake")]
    with pytest.raises(ConfigurationError, match="'their_sinks:OTHER' must be a SinkKind; got int"):
        make_sinks([settings("queue", "their_sinks:OTHER")])


@pytest.mark.parametrize(
    ("kind", "implementation", "message"),
    [
        ("queue", None, "^kind of sink 'queue' is not known; the known names are '"),
        (
            "queue",
            "no_such:KIND",
            "^kind of sink 'queue': implementation 'no_such:KIND' cannot be imported: Module",
        ),
    ],
)
def test_unknown_kind_is_named(kind: str, implementation: str | None, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make_sinks([settings(kind, implementation)])


def test_kind_without_its_library_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_tables.py").write_text(
        "from airflow_provider_coordination.spark.sinks import SinkKind\n"
        "TABLE = SinkKind(make=None, modules=('json', 'no_such_tables'), requirement='their-package[tables]')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    message = r"^kind of sink 'table' needs the module 'no_such_tables', .*; install their-package\[tab"
    with pytest.raises(ConfigurationError, match=message):
        make_sinks([settings("table", "their_tables:TABLE")])


def test_dag_sinks_need_neither_spark_nor_pyarrow() -> None:
    code = (
        "import sys\n"
        "from airflow_provider_coordination.spark.writes import ParquetDataset\n"
        "from airflow_provider_coordination.spark.writes import sinks_of\n"
        "sinks_of(ParquetDataset('/lake'), None)\n"
        "print([name for name in ('pyarrow', 'pyspark') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
