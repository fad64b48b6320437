"""A custom supplier yields partitions; invalid ones are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.supplier import Page
from airflow_provider_coordination.sources.items import PartitionProgress
from airflow_provider_coordination.sources.own_source import PAGE_SIZE, pages_of


def items(page: Page) -> dict[str, list[dict[str, Any]]]:
    progress = {key: PartitionProgress.from_mapping(stored) for key, stored in page.partitions.items()}
    assert {each.kind for each in progress.values()} <= {"weather"}
    return {key: list(each.items) for key, each in progress.items()}


def all_items(*found: Any) -> dict[str, list[dict[str, Any]]]:
    return {key: of_key for page in pages_of(found, "weather") for key, of_key in items(page).items()}


def test_key_is_a_partition_of_one_item() -> None:
    assert all_items("oslo") == {"oslo": [{"key": "oslo"}]}


def test_item_partition_is_named_by_its_key() -> None:
    assert all_items({"key": "oslo", "year": 2026}) == {"oslo": [{"key": "oslo", "year": 2026}]}


def test_item_without_key_is_named_by_its_content() -> None:
    [[first], [second], [other]] = (list(all_items(item)) for item in ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 2}))
    assert first == second != other


def test_list_is_a_page_and_flushes_earlier_items() -> None:
    pages = [list(page.partitions) for page in pages_of(["a", "b", ["c", {"key": "d"}], "e"], "weather")]
    assert pages == [["a", "b"], ["c", "d"], ["e"]]


def test_single_items_are_created_in_pages_during_discovery() -> None:
    asked = 0

    def found() -> Iterator[str]:
        nonlocal asked
        for asked in range(1, 3 * PAGE_SIZE):
            yield str(asked)

    pages = pages_of(found(), "weather")
    assert len(next(pages).partitions) == PAGE_SIZE
    assert asked == PAGE_SIZE


def test_page_gives_keys_items_and_a_state() -> None:
    [page] = pages_of([Page({"oslo": [{"day": 1}, {"day": 2}], "rome": {"day": 3}}, state={"day": 3})], "weather")
    assert items(page) == {"oslo": [{"day": 1}, {"day": 2}], "rome": [{"day": 3}]}
    assert page.state == {"day": 3}


def test_page_without_partitions_leaves_its_state() -> None:
    [page] = pages_of([Page({}, state={"seen": 1})], "weather")
    assert (page.partitions, page.state) == ({}, {"seen": 1})


def test_item_without_kind_becomes_the_initial_progress() -> None:
    [page] = pages_of(["a", {"key": "b", "rows_done": 0}], None)
    assert page.partitions == {"a": {}, "b": {"key": "b", "rows_done": 0}}


@pytest.mark.parametrize("found", [7, b"bytes", [7], Page({"a": []}), Page({"a": "text"})])
def test_invalid_partition_is_refused(found: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=r"a supplier must yield keys, items \(mappings\), lists of these, or pages"
    ):
        list(pages_of([found], "weather"))


def test_item_that_is_not_json_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="cannot be written as JSON: Object of type set"):
        list(pages_of([{"days": {1, 2}}], "weather"))
