"""The operations on the tags of streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.support.kinesis_server.errors import invalid, limit_exceeded
from tests.support.kinesis_server.state import Body, Request, State

MOST_TAGS = 50


def add_tags(state: State, request: Request) -> Body:
    stream = state.stream_of(request)
    tags = {**stream.tags, **request["Tags"]}
    if len(tags) > MOST_TAGS:
        raise invalid(f"Stream {stream.name} would have {len(tags)} tags; the limit is {MOST_TAGS}.")
    stream.tags = tags
    return {}


def remove_tags(state: State, request: Request) -> Body:
    stream = state.stream_of(request)
    stream.tags = {name: value for name, value in stream.tags.items() if name not in request["TagKeys"]}
    return {}


def list_tags(state: State, request: Request) -> Body:
    if not state.tag_calls.take(state.now_ms, state.limits.list_tags_per_second):
        raise limit_exceeded(f"Rate exceeded for ListTagsForStream under account {state.account}.")
    stream = state.stream_of(request)
    names = sorted(name for name in stream.tags if name > request.get("ExclusiveStartTagKey", ""))
    page = names[: request.get("Limit", MOST_TAGS)]
    return {"Tags": [{"Key": n, "Value": stream.tags[n]} for n in page], "HasMoreTags": len(page) < len(names)}


OPERATIONS: Mapping[str, Callable[[State, Request], Body]] = {
    "AddTagsToStream": add_tags,
    "RemoveTagsFromStream": remove_tags,
    "ListTagsForStream": list_tags,
}
