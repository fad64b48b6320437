"""A source of one's own, as a DAG describes it."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.serialization.helpers import serialize_template_field

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.operators.reads.reads import Located
from tests.airflow.conftest import SECRET
from tests.airflow.weather import towns, weather


def test_it_says_what_reads_it() -> None:
    reads = weather(reader_settings={"unit": "C"}).connect().reads
    assert (reads.kind, reads.settings) == (
        "weather",
        {"reader": "weather:Weather", "reader_settings": {"unit": "C"}},
    )


def test_its_supplier_finds_its_partitions(coordination: SourceCoordinator) -> None:
    pages = list(weather().connect().supplier(coordination)({}))
    assert [list(page.partitions) for page in pages] == [["oslo"], ["rome", "cairo"]]


def test_without_a_supplier_the_error_names_the_remedy(coordination: SourceCoordinator) -> None:
    with pytest.raises(ConfigurationError, match="kind 'weather' has no supplier for source 'clicks'; give 'supplier'"):
        weather(supplier=None).connect().supplier(coordination)


def test_the_reader_is_given_a_connection(connect: Any) -> None:
    connect("met", "http", host="met.example", port=443, login="me", password=SECRET, extra={"api": "v2"})
    given = weather(conn_id="met").connect().reads.settings["reader_settings"]["connection"]
    assert given == {
        "conn_type": "http", "host": "met.example", "port": 443, "schema": None, "login": "me", "password": SECRET,
        "extra": {"api": "v2"},
    }  # fmt: skip


def test_a_connection_that_is_not_defined_is_named() -> None:
    with pytest.raises(ConfigurationError, match="connection 'absent' is not defined; create it"):
        weather(conn_id="absent").connect()


@pytest.mark.parametrize("reader", ["weather", "weather:", ":Weather", "a:b:c"])
def test_a_reader_is_a_class_of_a_module(reader: str) -> None:
    with pytest.raises(ConfigurationError, match="field 'reader' must be of the form 'module:class'"):
        weather(reader=reader).connect()


def test_a_kind_has_a_name() -> None:
    with pytest.raises(ConfigurationError, match="field 'kind' must not be empty"):
        weather(kind="").connect()


def test_the_source_is_named_as_the_kind_unless_it_says_otherwise() -> None:
    assert (weather().default_source, weather(source="met").default_source) == ("weather", "met")


def test_what_a_template_makes_of_nothing_is_not_given() -> None:
    reads = weather(source="None", conn_id="None")
    assert (reads.default_source, reads.reads_from["conn_id"]) == ("weather", None)
    assert "connection" not in reads.connect().reads.settings["reader_settings"]


def test_only_the_settings_that_say_where_it_reads_from_locate_it() -> None:
    reads = weather(reader_settings={"url": "a", "retries": 3}, located_by=["url", "absent"])
    assert isinstance(reads, Located)
    assert reads.reads_from == {"reader": "weather:Weather", "conn_id": None, "url": "a"}


def test_it_is_shown_the_same_whenever_the_dag_file_is_parsed() -> None:
    shown = serialize_template_field(weather(reader_settings={"unit": "{{ params.unit }}"}), "reads")
    assert "0x" not in str(shown) and "{{ params.unit }}" in str(shown)
    assert "0x" not in repr(weather()) and towns.__name__ not in repr(weather())
