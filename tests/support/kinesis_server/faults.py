"""Faults that a test injects into calls: refusals, and broken connections."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypedDict, Unpack

from tests.support.kinesis_server.errors import ApiError


class Subject(NamedTuple):
    """What a call is about, as far as it says."""

    stream: str | None = None
    shard_id: str | None = None


@dataclass(frozen=True)
class RefusedCall:
    """Answer with an error; nothing is done."""

    code: str
    message: str
    status: int = 400


@dataclass(frozen=True)
class ResetConnection:
    """Cut the connection before anything is done."""


@dataclass(frozen=True)
class LostResponse:
    """Do it, and never answer: the connection ends."""


@dataclass(frozen=True)
class SlowResponse:
    """Do it, and let the answer's body take its time."""

    seconds: float


@dataclass(frozen=True)
class CallFirst:
    """Do something first; then serve the call as ever."""

    act: Callable[[], object]


Effect = RefusedCall | ResetConnection | LostResponse | SlowResponse | CallFirst


class RuleFilter(TypedDict, total=False):
    """Which calls a rule is about, as the parameters of `Rule` say."""

    stream: str | None
    shard_id: str | None
    after: int
    times: int | None


class Rule:
    """One fault, and how often it happened.

    :param effect: what happens.
    :param operation: to which calls, such as `GetRecords`; None is every operation.
    :param stream: of which stream; None is every one.
    :param shard_id: of which shard; None is every one.
    :param after: how many such calls pass unharmed first.
    :param times: how many it then happens to; None is all.
    """

    def __init__(
        self,
        effect: Effect,
        operation: str | None,
        *,
        stream: str | None = None,
        shard_id: str | None = None,
        after: int = 0,
        times: int | None = 1,
    ) -> None:
        self.effect = effect
        self.hits = 0
        self._operation = operation
        self._subject = Subject(stream, shard_id)
        self._after = after
        self._times = times

    def strikes(self, operation: str, subject: Subject) -> bool:
        """Count a call, and return whether the fault happens to it."""
        if self._times is not None and self.hits >= self._times:
            return False
        if self._operation not in (None, operation):
            return False
        if any(wanted not in (None, actual) for wanted, actual in zip(self._subject, subject, strict=True)):
            return False
        if self._after > 0:
            self._after -= 1
            return False
        self.hits += 1
        return True


class Faults:
    """The faults of an engine. Every method adds a rule and returns it; of several that fit a call the oldest wins.

    All take `stream`, `shard_id`, `after` and `times` as `Rule` does.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: list[Rule] = []

    def add(self, effect: Effect, operation: str | None, **which: Unpack[RuleFilter]) -> Rule:
        rule = Rule(effect, operation, **which)
        with self._lock:
            self._rules = [*self._rules, rule]
        return rule

    def refuse(self, operation: str | None, code: str, *, status: int = 400, **which: Unpack[RuleFilter]) -> Rule:
        """Answer with any error."""
        return self.add(RefusedCall(code, f"a fault of the test: {code}", status), operation, **which)

    def throttle(self, operation: str | None = "GetRecords", **which: Unpack[RuleFilter]) -> Rule:
        """Answer that too much was asked, in the words of that operation."""
        listing = operation is not None and operation.startswith(("List", "Describe", "Subscribe"))
        code = "LimitExceededException" if listing else "ProvisionedThroughputExceededException"
        return self.refuse(operation, code, **which)

    def fail(self, operation: str | None, **which: Unpack[RuleFilter]) -> Rule:
        """Answer with a 500."""
        return self.refuse(operation, "InternalFailure", status=500, **which)

    def deny(self, operation: str | None, **which: Unpack[RuleFilter]) -> Rule:
        """Answer that the caller's policy does not allow it."""
        return self.refuse(operation, "AccessDeniedException", **which)

    def expire_iterator(self, **which: Unpack[RuleFilter]) -> Rule:
        """Answer GetRecords with an iterator that was kept too long."""
        return self.refuse("GetRecords", "ExpiredIteratorException", **which)

    def kms(
        self, code: str = "KMSAccessDeniedException", operation: str = "GetRecords", **which: Unpack[RuleFilter]
    ) -> Rule:
        """Answer that the stream's key cannot be used."""
        return self.refuse(operation, code, **which)

    def reset(self, operation: str | None, **which: Unpack[RuleFilter]) -> Rule:
        """Cut the connection before the call is served."""
        return self.add(ResetConnection(), operation, **which)

    def lose_answer(self, operation: str | None, **which: Unpack[RuleFilter]) -> Rule:
        """Serve the call, and let its answer never arrive."""
        return self.add(LostResponse(), operation, **which)

    def slow(self, operation: str | None, seconds: float, **which: Unpack[RuleFilter]) -> Rule:
        """Let the answer's body take this long."""
        return self.add(SlowResponse(seconds), operation, **which)

    def before(self, operation: str | None, act: Callable[[], object], **which: Unpack[RuleFilter]) -> Rule:
        """Do something just before the call is served."""
        return self.add(CallFirst(act), operation, **which)

    def remove(self, rule: Rule) -> None:
        with self._lock:
            self._rules = [other for other in self._rules if other is not rule]

    def clear(self) -> None:
        with self._lock:
            self._rules = []

    @property
    def any(self) -> bool:
        """Whether there is a rule at all."""
        return bool(self._rules)

    def due(self, operation: str, subject: Subject) -> Effect | None:
        """Return what happens to a call."""
        with self._lock:
            for rule in self._rules:
                if rule.strikes(operation, subject):
                    return rule.effect
        return None


def refusal(effect: RefusedCall) -> ApiError:
    return ApiError(effect.code, effect.message, effect.status)
