"""JSON responses. Identical requests share one: its facts and its JSON are made once, in a thread of the plugin."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from typing import Any

from fastapi import Response
from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from airflow_provider_coordination.ui.store_queries import QueryScheduler

# The name of a source may contain slashes, and a proxy may have decoded them.
SOURCE = "/connections/{connection_id}/sources/{source:path}"

_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


async def query_response(
    queries: QueryScheduler,
    connection_id: str,
    what: Hashable,
    query: Callable[[], object],
    *,
    cooldown: float = 1.0,
) -> Response:
    """Return the result of a query as JSON; see `QueryScheduler.read`."""
    return json_response(await queries.read(connection_id, what, lambda: json_text(query()), cooldown=cooldown))


def json_text(facts: object) -> bytes:
    """Return a dataclass as JSON."""
    kind = type(facts)
    adapter = _ADAPTERS.get(kind) or _ADAPTERS.setdefault(kind, TypeAdapter(kind))
    try:
        return adapter.dump_json(facts)
    except PydanticSerializationError:  # half a character, which JSON can spell and UTF-8 cannot
        return json.dumps(adapter.dump_python(facts, mode="json")).encode()


def json_response(text: bytes) -> Response:
    """Return JSON that no cache keeps, as the rights of a user may change."""
    return Response(text, media_type="application/json", headers={"Cache-Control": "no-store"})
