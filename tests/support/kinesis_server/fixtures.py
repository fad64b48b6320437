"""The fixtures of the Kinesis server for tests, registered in `tests/conftest.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.kinesis_server.http import KinesisAccount, KinesisServer


@pytest.fixture(scope="session")
def kinesis_server() -> Iterator[KinesisServer]:
    """Our own Kinesis over HTTP, shared by the whole test run: use `kinesis_account` to have one for yourself."""
    from tests.support.kinesis_server.http import KinesisServer

    with KinesisServer() as server:
        yield server


@pytest.fixture
def kinesis_account(kinesis_server: KinesisServer) -> KinesisAccount:
    """An account of the Kinesis server that has nothing yet, with a clock that the test moves."""
    return kinesis_server.account()
