"""A reader of items describes its source."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.items import READS_AT_ONCE, reads_at_once
from tests.support.items import FakeSource


class StubReader(FakeSource):
    def __init__(self, most: Any) -> None:
        super().__init__()
        self.reads_at_once = most


def test_reader_may_limit_its_concurrent_reads() -> None:
    assert [reads_at_once(reader) for reader in (FakeSource(), StubReader(1), StubReader(None))] == [
        READS_AT_ONCE,
        1,
        None,
    ]


@pytest.mark.parametrize("most", [0, -1, "8", 2.0, True])
def test_invalid_number_of_reads_is_refused(most: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"reader 'StubReader': attribute 'reads_at_once' must be a positive"):
        reads_at_once(StubReader(most))
