"""What a person orders for a source and its partitions, and what becomes of it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StringConstraints,
    field_validator,
)

from airflow_provider_coordination.ui.models.partitions import PartitionRow
from airflow_provider_coordination.ui.models.values import MAX_PARTITIONS_AT_ONCE, Key, Reason


class PartitionSeen(BaseModel):
    """A partition as a person saw it."""

    model_config = ConfigDict(extra="forbid")

    key: Key
    version: StrictInt


class ActionBody(BaseModel):
    """What is to be done to partitions.

    :param partitions: which, each as it was seen.
    :param reason: why.
    :param to: for `reset`, where they are read from: `earliest`, `latest`, an instant or a sequence number.
    """

    model_config = ConfigDict(extra="forbid")

    partitions: Annotated[list[PartitionSeen], Field(min_length=1, max_length=MAX_PARTITIONS_AT_ONCE)]
    reason: Reason
    to: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None

    @field_validator("partitions")
    @classmethod
    def _each_once(cls, partitions: list[PartitionSeen]) -> list[PartitionSeen]:
        if len({seen.key for seen in partitions}) < len(partitions):
            raise ValueError("a key is named twice; name each partition once")
        return partitions


class ReasonBody(BaseModel):
    """Why something is done."""

    model_config = ConfigDict(extra="forbid")

    reason: Reason


class SuspendBody(ReasonBody):
    """Why a source is suspended; `new_source` says that it may be one of which the store holds nothing yet."""

    new_source: StrictBool = False


class ResumeBody(ReasonBody):
    """Why a source goes on; `since` is that of the suspension as it was seen: another one stays."""

    since: AwareDatetime | None = None


class ActionResult(BaseModel):
    """What became of one partition; `stale` is one that has changed since it was seen: nothing was done to it."""

    key: str
    outcome: Literal["done", "stale", "refused", "missing"]
    detail: str
    partition: PartitionRow | None


class ActionResults(BaseModel):
    """What became of each partition, in the order in which they were named."""

    results: list[ActionResult]
