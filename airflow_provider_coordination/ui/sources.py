"""A source, as a request names it: by its connection and its name."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from secrets import token_hex

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from fastapi import HTTPException

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.hooks.coordination import connection_settings


@contextmanager
def opened_source(connection_id: str, source: str) -> Iterator[SourceCoordinator]:
    """Open the store of a connection, for one request; give a coordinator of the source.

    :raises HTTPException: if the connection is not defined.
    """
    try:
        settings = connection_settings(BaseHook.get_connection(connection_id))
    except AirflowNotFoundException:
        raise HTTPException(404, f"connection {connection_id!r} is not defined") from None
    coordinator = settings.coordinator(source, f"{socket.gethostname()}:http:{token_hex(4)}")
    with closing(coordinator.store):
        yield coordinator
