"""A `History` of a table's stream: its shards roll and split, it is disabled and enabled again."""

from __future__ import annotations

from typing import Any

from airflow_provider_coordination.spark.dynamodb_streams.reading import ChangeFormat
from tests.support.dynamodb_streams import DynamoDbStreams, StreamShard, client_of, strings
from tests.support.history import STREAM, History

MAX_OPEN_SHARDS = 6


class ChangeHistory(History):
    """A table whose items change, and a fleet that reads its stream."""

    format = ChangeFormat()

    def connect(self, shards: int) -> Any:
        self.service = DynamoDbStreams(self.clock)
        self.service.create_table(STREAM, shards=shards)
        return client_of(self.service)

    def send(self, count: int, keys: int = 5) -> None:
        """Change items, one after the other."""
        for _ in range(count):
            key = f"k{len(self.sent) % keys}"
            event = f"{key}/{len(self.sent)}"
            self.clock.advance(0.01)
            self.service.put(STREAM, strings(id=key, event=event))
            self.sent.append(event)

    @property
    def live_shards(self) -> list[StreamShard]:
        return [shard for shard in self.service.stream_of(STREAM).shards.values() if shard.last is None]

    @property
    def open_shards(self) -> list[dict[str, Any]]:
        return [{"ShardId": shard.shard_id} for shard in self.live_shards]

    def roll(self, at: int) -> None:
        """End a shard, which has one child."""
        self._end(at, split=False)

    def split(self, at: int) -> None:
        """End a shard, which has two children."""
        self._end(at, split=len(self.live_shards) < MAX_OPEN_SHARDS)

    def _end(self, at: int, *, split: bool) -> None:
        if shards := self.live_shards:
            self.service.end(self.service.stream_of(STREAM), shards[at % len(shards)], split=split)

    def enable_again(self, pause_seconds: int) -> None:
        """Disable the stream, and enable another one after a pause."""
        self.service.disable(STREAM)
        self.clock.advance(pause_seconds)
        self.service.enable(STREAM)
