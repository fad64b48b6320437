"""How tests control a server that is another process, over paths beside the API.

`POST <path>` with a JSON object, in which `access_key_id` says whose account is meant (`test` by default):

- `/test/fault`: `effect` is a method of `Faults` that needs no function (`throttle`, `fail`, `reset`, …), and the rest
  its arguments
- `/test/clear_faults`
- `/test/limits`, `/test/behaviour`: the fields of `Limits` and `Behaviour`
- `/test/trim`: `stream`, and perhaps `shard_id` and `through`
- `/test/expire_shard`: `stream` and `shard_id`
- `/test/calls`: answers how often each operation was called

`GET /healthcheck` answers as soon as the server is up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.kinesis_server.engine import Engine
from tests.support.kinesis_server.limits import Limits
from tests.support.kinesis_server.state import Behaviour

EFFECTS = frozenset({"deny", "expire_iterator", "fail", "kms", "lose_answer", "refuse", "reset", "slow", "throttle"})


def perform(engines: Callable[[str], Engine], path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Do what a test asks for, and return the answer.

    :param engines: gives the account of an access key id.
    :param path: what to do.
    :param body: with what.
    :raises KeyError: if there is no such path or effect.
    """
    if path == "/healthcheck":
        return {"status": "ok"}
    arguments = dict(body)
    return _PATHS[path](engines(arguments.pop("access_key_id", "test")), arguments) or {}


def _fault(engine: Engine, arguments: dict[str, Any]) -> None:
    effect = arguments.pop("effect")
    if effect not in EFFECTS:
        raise KeyError(f"{effect} is none of {', '.join(sorted(EFFECTS))}")
    getattr(engine.faults, effect)(**arguments)


def _clear_faults(engine: Engine, arguments: dict[str, Any]) -> None:
    engine.faults.clear(**arguments)


def _limits(engine: Engine, arguments: dict[str, Any]) -> None:
    engine.limits = Limits(**arguments)


def _behaviour(engine: Engine, arguments: dict[str, Any]) -> None:
    engine.behaviour = Behaviour(**arguments)


def _trim(engine: Engine, arguments: dict[str, Any]) -> None:
    engine.trim(**arguments)


def _expire_shard(engine: Engine, arguments: dict[str, Any]) -> None:
    engine.expire_shard(**arguments)


def _calls(engine: Engine, arguments: dict[str, Any]) -> dict[str, Any]:
    return dict(engine.calls)


_PATHS: dict[str, Callable[[Engine, dict[str, Any]], dict[str, Any] | None]] = {
    "/test/fault": _fault,
    "/test/clear_faults": _clear_faults,
    "/test/limits": _limits,
    "/test/behaviour": _behaviour,
    "/test/trim": _trim,
    "/test/expire_shard": _expire_shard,
    "/test/calls": _calls,
}
