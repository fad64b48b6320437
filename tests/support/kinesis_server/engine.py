"""The service: executes or refuses a call of the API, whatever carried it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.support.kinesis_server import (
    consumers_api,
    policies_api,
    records_api,
    shards_api,
    streams_api,
    tags_api,
)
from tests.support.kinesis_server.consumers import Subscription
from tests.support.kinesis_server.errors import ApiError, ConnectionCutError, invalid
from tests.support.kinesis_server.faults import (
    CallFirst,
    Effect,
    LostResponse,
    RefusedCall,
    ResetConnection,
    SlowResponse,
    Subject,
    refusal,
)
from tests.support.kinesis_server.records_api import iterator_subject
from tests.support.kinesis_server.shard import Record
from tests.support.kinesis_server.state import Body, Request, State, account_in, name_in


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call comes to.

    :param body: the answer as boto3 returns it: bytes are bytes, instants are datetimes.
    :param slow_seconds: how long its body takes on the way.
    :param lost: whether it never arrives.
    :param subscription: instead of a body, where the call was SubscribeToShard.
    """

    body: Body
    slow_seconds: float = 0.0
    lost: bool = False
    subscription: Subscription | None = None


class Engine(State):
    """One account of the service in one region, as `State` describes it. May be shared by threads."""

    def call(self, operation: str, request: Request) -> Answer:
        """Serve one call, also to a stream of another account whose policy allows it.

        :param operation: as the API names it, such as `GetRecords`.
        :param request: its parameters as boto3 takes them.
        :raises ApiError: if it is refused.
        :raises ConnectionCutError: if a fault cuts the connection.
        """
        owner = self._owner(operation, request)
        if owner is not self:
            return owner.call(operation, request)
        effect = self._fault(operation, request)
        if isinstance(effect, CallFirst):
            effect.act()
        elif isinstance(effect, ResetConnection):
            raise ConnectionCutError(operation)
        with self.changed:
            self.calls[operation] += 1
            if isinstance(effect, RefusedCall):
                raise refusal(effect)
            body, subscription = self._perform(operation, request)
            self.changed.notify_all()
        return Answer(
            body,
            slow_seconds=effect.seconds if isinstance(effect, SlowResponse) else 0.0,
            lost=isinstance(effect, LostResponse),
            subscription=subscription,
        )

    def _owner(self, operation: str, request: Request) -> Engine:
        """Return the account that the ARN of a request names; this one if there is no ARN."""
        arns = (request.get(name) for name in ("ConsumerARN", "StreamARN", "ResourceARN"))
        arn = next(filter(None, arns), "")
        if (account := account_in(arn)) in ("", self.account):
            return self
        owner = policies_api.require_allowed(self.neighbours(account), self.account, operation, arn)
        assert isinstance(owner, Engine)
        return owner

    def stored(self, stream: str) -> dict[str, list[Record]]:
        """Return what can be read now, by shard."""
        with self.changed:
            shards = self.stream(stream).shards
            return {
                name: [dict(record) for record in shard.records.records[shard.records.first :]]
                for name, shard in shards.items()
            }

    def trim(self, stream: str, shard_id: str | None = None, *, through: str | None = None) -> None:
        """Let records vanish as if they were older than the retention.

        :param shard_id: of which shard; by default of every one.
        :param through: the number of the last one that goes; by default all go.
        """
        with self.changed:
            of = self.stream(stream)
            for shard in [of.shard(shard_id)] if shard_id else of.shards.values():
                shard.records.trim_through(int(through) if through is not None else shard.newest_number)

    def expire_shard(self, stream: str, shard_id: str) -> None:
        """Let a closed shard vanish as if it was closed longer ago than the retention."""
        with self.changed:
            of = self.stream(stream)
            shard = of.shard(shard_id)
            if shard.is_open:
                raise invalid(f"Shard {shard_id} is open: only closed shards vanish.")
            of.forget([shard])

    def _fault(self, operation: str, request: Request) -> Effect | None:
        if not self.faults.any:
            return None
        with self.changed:
            subject = self._subject(request)
        return self.faults.due(operation, subject)

    def _perform(self, operation: str, request: Request) -> tuple[Body, Subscription | None]:
        if operation == "SubscribeToShard":
            return {}, consumers_api.subscribe(self, request)
        try:
            perform = _OPERATIONS[operation]
        except KeyError:
            raise ApiError("UnknownOperationException", f"{operation} is not served") from None
        return perform(self, request), None

    def _subject(self, request: Request) -> Subject:
        if "ShardIterator" in request:
            return Subject(*iterator_subject(self, request["ShardIterator"]))
        arn = request.get("StreamARN") or request.get("ConsumerARN")
        stream = request.get("StreamName") or (name_in(arn) if arn else None)
        return Subject(stream, request.get("ShardId"))


def connect(*engines: Engine) -> None:
    """Let accounts reach the streams of each other, as far as their policies allow."""
    by_account = {engine.account: engine for engine in engines}
    for engine in engines:
        engine.neighbours = by_account.get


_OPERATIONS: Mapping[str, Callable[[State, Request], Body]] = {
    **streams_api.OPERATIONS,
    **shards_api.OPERATIONS,
    **records_api.OPERATIONS,
    **consumers_api.OPERATIONS,
    **tags_api.OPERATIONS,
    **policies_api.OPERATIONS,
}
