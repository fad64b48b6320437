"""Resource policies, by which an account lets others use its streams and consumers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from tests.support.kinesis_server.errors import ApiError, invalid, not_found
from tests.support.kinesis_server.state import Body, Request, State, name_in

OF_OTHERS = frozenset(
    {
        "DescribeStreamConsumer",
        "DescribeStreamSummary",
        "GetRecords",
        "GetShardIterator",
        "ListShards",
        "PutRecord",
        "PutRecords",
        "SubscribeToShard",
    }
)
"""The operations that a resource policy can allow to another account."""


def require_allowed(owner: State | None, caller: str, operation: str, arn: str) -> State:
    """Return the account that owns a resource, if its policy allows a call.

    :param owner: None if there is no such account.
    :param caller: the account that calls.
    :raises ApiError: if it does not.
    """
    if owner is not None and operation in OF_OTHERS:
        with owner.changed:
            policy = owner.policies.get(arn, "{}")
        if any(_allows(statement, caller, operation, arn) for statement in _items(json.loads(policy), "Statement")):
            return owner
    raise ApiError(
        "AccessDeniedException",
        f"User: arn:aws:iam::{caller}:root is not authorized to perform: kinesis:{operation} on resource: {arn} "
        f"because no resource-based policy allows the kinesis:{operation} action",
    )


def _allows(statement: Mapping[str, Any], caller: str, operation: str, arn: str) -> bool:
    principal = statement.get("Principal", {})
    named = ["*"] if principal == "*" else list(_items(principal, "AWS"))
    return (
        statement.get("Effect") == "Allow"
        and any(each in ("*", caller, f"arn:aws:iam::{caller}:root") for each in named)
        and any(fnmatchcase(f"kinesis:{operation}", action) for action in _items(statement, "Action"))
        and any(fnmatchcase(arn, resource) for resource in _items(statement, "Resource"))
    )


def _items(values: Mapping[str, Any], name: str) -> Iterator[Any]:
    value = values.get(name, [])
    yield from value if isinstance(value, list) else [value]


def put_policy(state: State, request: Request) -> Body:
    arn = _existing(state, request["ResourceARN"])
    try:
        json.loads(request["Policy"])
    except ValueError:
        raise invalid("Policy is not valid JSON.") from None
    state.policies[arn] = request["Policy"]
    return {}


def get_policy(state: State, request: Request) -> Body:
    return {"Policy": state.policies.get(_existing(state, request["ResourceARN"]), "{}")}


def delete_policy(state: State, request: Request) -> Body:
    if state.policies.pop(_existing(state, request["ResourceARN"]), None) is None:
        raise not_found(f"The policy of {request['ResourceARN']}")
    return {}


def _existing(state: State, arn: str) -> str:
    stream = state.stream(name_in(arn))
    if arn != stream.arn and arn not in (consumer.arn for consumer in stream.consumers.values()):
        raise not_found(f"Resource {arn} under account {state.account}")
    return arn


OPERATIONS: Mapping[str, Callable[[State, Request], Body]] = {
    "PutResourcePolicy": put_policy,
    "GetResourcePolicy": get_policy,
    "DeleteResourcePolicy": delete_policy,
}
