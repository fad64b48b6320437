"""Names of sources and partitions that no store can hold are refused before a write."""

from __future__ import annotations

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.coordination.fleet import Fleet

UNUSABLE_KEYS = {
    "empty": ("", "give text that is not empty and has no NUL"),
    "NUL": ("a\0b", "give text that is not empty and has no NUL"),
    "too long": ("x" * 1025, "it has 1025 bytes in UTF-8; the limit is 1024; shorten it"),
    "too long in UTF-8": ("ü" * 513, "it has 1026 bytes in UTF-8; the limit is 1024; shorten it"),
    "half a character": ("a\ud800b", "it is not valid Unicode text"),
}


@pytest.mark.parametrize(("key", "message"), UNUSABLE_KEYS.values(), ids=UNUSABLE_KEYS)
def test_invalid_key_is_refused_before_anything_is_created(key: str, message: str) -> None:
    fleet = Fleet()
    a = fleet.owner("a")
    with pytest.raises(ConfigurationError, match=message):
        a.create_partitions({"good": {}, key: {}})
    assert "create" not in fleet.store.calls


@pytest.mark.parametrize(("key", "message"), UNUSABLE_KEYS.values(), ids=UNUSABLE_KEYS)
def test_invalid_child_key_keeps_its_parent_open(key: str, message: str) -> None:
    fleet = Fleet()
    a = fleet.working("a", "x")
    with pytest.raises(ConfigurationError, match=message):
        a.leases.complete("x", create={"good": {}, key: {}})
    assert fleet.stored().status is PartitionStatus.ASSIGNED and a.leases.owns("x") and a.view.get("good") is None


@pytest.mark.parametrize(
    "key", ["a|b/c d", "s3://bucket/key?x=%20#1", "ключ-ü-🙂", "'; drop table x; --", " ", "\n", "x" * 1024, "🙂" * 256]
)
def test_any_other_key_is_accepted(key: str) -> None:
    a = Fleet().owner("a")
    assert a.create_partitions({key: {"n": 1}}) == [key]
    [acquired] = a.leases.acquire(1)
    a.leases.complete(key)
    assert acquired.partition_key == key and a.view.get(key) is not None


def test_long_key_is_truncated_in_the_error() -> None:
    with pytest.raises(ConfigurationError) as error:
        Fleet().owner("a").create_partitions({"x" * 100_000: {}})
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    ("source", "prefix"), [("x" * 247, None), ("x" * 123, "p" * 123), ("ü" * 124, None), ("clicks", "p" * 250)]
)
def test_item_family_above_256_bytes_is_refused(source: str, prefix: str | None) -> None:
    with pytest.raises(ConfigurationError, match=r"source identifier .* the limit is 256; shorten it"):
        SourceCoordinator(InMemoryStore(), source, "owner", prefix=prefix)


def test_item_family_of_256_bytes_is_accepted() -> None:
    longest = "x" * (256 - len("|GLOBAL_STATE"))
    SourceCoordinator(InMemoryStore(), longest, "owner")
    with pytest.raises(ConfigurationError, match="the limit is 256"):
        SourceCoordinator(InMemoryStore(), longest + "x", "owner")


@pytest.mark.parametrize("source", ["click\0s", "click\ud800s"])
def test_unstorable_source_name_is_refused(source: str) -> None:
    with pytest.raises(ConfigurationError, match="source identifier"):
        SourceCoordinator(InMemoryStore(), source, "owner")


def test_owner_without_a_name_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="give the name of one worker process"):
        SourceCoordinator(InMemoryStore(), "clicks", "")
