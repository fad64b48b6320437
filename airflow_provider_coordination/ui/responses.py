"""Answers that are made once for everybody who asks the same: the model, and its JSON, in a thread of our own."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable

from fastapi import Response
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

from airflow_provider_coordination.ui.store_queries import Desk

# A source may have slashes in its name; a proxy may have decoded them.
SOURCE = "/connections/{connection_id}/sources/{source:path}"


async def json_answer(
    desk: Desk, connection_id: str, what: Hashable, question: Callable[[], BaseModel], *, rest: float = 1.0
) -> Response:
    """Return the answer to a question as JSON; see `Desk.look`."""
    return json_response(await desk.look(connection_id, what, lambda: json_text(question()), rest=rest))


def json_text(answer: BaseModel) -> bytes:
    """Return the JSON of an answer."""
    try:
        return answer.model_dump_json().encode()
    except PydanticSerializationError:  # half a character, which JSON can spell and UTF-8 cannot
        return json.dumps(answer.model_dump(mode="json")).encode()


def json_response(text: bytes) -> Response:
    """Return JSON that no cache keeps: whoever may see it now may not tomorrow."""
    return Response(text, media_type="application/json", headers={"Cache-Control": "no-store"})
