"""One set of servers for all processes of a test run."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Self

import pytest

from demo.server_process import Server
from tests.support.shared_servers import ADDRESS_VARIABLE, Lender, running


class NumberedServer(Server):
    """A server that counts its starts, and is known by the number of its start."""

    starts = 0
    stops = 0

    def __init__(self) -> None:
        self.number = 0
        self.lock = threading.Lock()  # cannot be sent to another process

    def __getstate__(self) -> dict[str, Any]:
        return {"number": self.number}

    def start(self) -> Self:
        type(self).starts += 1
        self.number = self.starts
        return self

    def stop(self) -> None:
        type(self).stops += 1


class MissingServer(Server):
    """A server that is not installed."""

    def start(self) -> Self:
        raise LookupError("it is not installed: run `make servers`")

    def stop(self) -> None:
        """Nothing runs."""


def test_lender_starts_a_server_once_and_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NumberedServer, "starts", 0)
    monkeypatch.setattr(NumberedServer, "stops", 0)
    lender = Lender()
    monkeypatch.setenv(ADDRESS_VARIABLE, lender.address)
    for _ in range(2):
        with running(NumberedServer) as server:
            assert server.number == 1
    assert (NumberedServer.starts, NumberedServer.stops) == (1, 0)
    lender.close()
    assert NumberedServer.stops == 1
    assert not Path(lender.address).exists()


def test_borrower_receives_why_a_server_did_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    lender = Lender()
    monkeypatch.setenv(ADDRESS_VARIABLE, lender.address)
    with pytest.raises(LookupError, match="run `make servers`"), running(MissingServer):
        pass
    lender.close()


def test_single_process_starts_its_own_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ADDRESS_VARIABLE, raising=False)
    monkeypatch.setattr(NumberedServer, "stops", 0)
    with running(NumberedServer) as server:
        assert server.lock
    assert NumberedServer.stops == 1
