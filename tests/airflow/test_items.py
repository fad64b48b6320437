"""A custom source in a DAG."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.serialization.helpers import serialize_template_field

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.connections import AirflowConnections
from tests.airflow.conftest import SECRET
from tests.airflow.weather import towns, weather


def test_connect_gives_the_reader_and_its_settings() -> None:
    reads = weather(reader_settings={"unit": "C"}).connect(AirflowConnections()).reads
    assert (reads.kind, reads.settings) == (
        "weather",
        {"reader": "weather:Weather", "reader_settings": {"unit": "C"}},
    )


def test_supplier_finds_the_partitions(coordination: SourceCoordinator) -> None:
    pages = list(weather().connect(AirflowConnections()).supplier(coordination)({}))
    assert [list(page.partitions) for page in pages] == [["oslo"], ["rome", "cairo"]]


def test_missing_supplier_error_names_the_remedy(coordination: SourceCoordinator) -> None:
    with pytest.raises(ConfigurationError, match="kind 'weather' has no supplier for source 'clicks'; give 'supplier'"):
        weather(supplier=None).connect(AirflowConnections()).supplier(coordination)


def test_reader_receives_a_connection(connect: Any) -> None:
    connect("met", "http", host="met.example", port=443, login="me", password=SECRET, extra={"api": "v2"})
    given = weather(conn_id="met").connect(AirflowConnections()).reads.settings["reader_settings"]["connection"]
    assert given == {
        "conn_type": "http", "host": "met.example", "port": 443, "schema": None, "login": "me", "password": SECRET,
        "extra": {"api": "v2"},
    }  # fmt: skip


def test_undefined_connection_is_named() -> None:
    with pytest.raises(ConfigurationError, match="connection 'absent' is not defined; create it"):
        weather(conn_id="absent").connect(AirflowConnections())


@pytest.mark.parametrize("reader", ["weather", "weather:", ":Weather", "a:b:c"])
def test_reader_must_be_a_class_of_a_module(reader: str) -> None:
    with pytest.raises(ConfigurationError, match="field 'reader' must be of the form 'module:class'"):
        weather(reader=reader).connect(AirflowConnections())


def test_kind_must_not_be_empty() -> None:
    with pytest.raises(ConfigurationError, match="field 'kind' must not be empty"):
        weather(kind="").connect(AirflowConnections())


def test_source_name_defaults_to_the_kind() -> None:
    assert (weather().default_source, weather(source="met").default_source) == ("weather", "met")


def test_empty_template_result_counts_as_not_given() -> None:
    reads = weather(source="None", conn_id="None")
    assert (reads.default_source, reads.reads_from["conn_id"]) == ("weather", None)
    assert "connection" not in reads.connect(AirflowConnections()).reads.settings["reader_settings"]


def test_location_holds_only_the_locating_settings() -> None:
    reads = weather(reader_settings={"url": "a", "retries": 3}, located_by=["url", "absent"])
    assert reads.reads_from == {"reader": "weather:Weather", "conn_id": None, "url": "a"}


def test_repr_is_the_same_at_every_parse() -> None:
    shown = serialize_template_field(weather(reader_settings={"unit": "{{ params.unit }}"}), "reads")
    assert "0x" not in str(shown) and "{{ params.unit }}" in str(shown)
    assert "0x" not in repr(weather()) and towns.__name__ not in repr(weather())
