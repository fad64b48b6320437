"""`demo.server_process` finds free ports."""

from __future__ import annotations

import itertools
import socket
from pathlib import Path

import pytest

from demo import server_process
from demo.server_process import free_ports


def test_free_port_cannot_be_taken_by_outgoing_connections() -> None:
    ephemeral = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(ephemeral.read_text().split()[0]) if ephemeral.exists() else server_process.LAST_PORT
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(server_process.FIRST_PORT <= port < first for port in ports)


def test_port_of_a_listening_server_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_process, "_tried", itertools.count())
    [port] = free_ports(1)
    with socket.create_server(("127.0.0.1", port)):
        monkeypatch.setattr(server_process, "_tried", itertools.count())
        assert port not in free_ports(5)


def test_processes_search_at_different_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for process in (4000, 4001):
        monkeypatch.setattr("os.getpid", lambda process=process: process)
        monkeypatch.setattr(server_process, "_tried", itertools.count())
        found.update(free_ports(10))
    assert len(found) == 20
