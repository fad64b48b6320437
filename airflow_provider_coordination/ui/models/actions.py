"""Actions on sources and partitions, and their outcomes."""

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


class PartitionVersion(BaseModel):
    """A partition and the version of it that the user saw."""

    model_config = ConfigDict(extra="forbid")

    key: Key
    version: StrictInt


class ActionBody(BaseModel):
    """An action on partitions.

    :param partitions: the partitions, each with the version that the user saw.
    :param reason: why the action is done.
    :param to: the target position of a `reset`: `earliest`, `latest`, an instant or a sequence number.
    """

    model_config = ConfigDict(extra="forbid")

    partitions: Annotated[list[PartitionVersion], Field(min_length=1, max_length=MAX_PARTITIONS_AT_ONCE)]
    reason: Reason
    to: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None

    @field_validator("partitions")
    @classmethod
    def _each_once(cls, partitions: list[PartitionVersion]) -> list[PartitionVersion]:
        if len({item.key for item in partitions}) < len(partitions):
            raise ValueError("a key occurs twice; send each partition once")
        return partitions


class ReasonBody(BaseModel):
    """The reason for an action."""

    model_config = ConfigDict(extra="forbid")

    reason: Reason


class SuspendBody(ReasonBody):
    """The reason for a suspension. `new_source` allows a source that the store does not know yet."""

    new_source: StrictBool = False


class ResumeBody(ReasonBody):
    """The reason to resume a source. `since` is the start of the suspension that the user saw."""

    since: AwareDatetime | None = None


class ActionResult(BaseModel):
    """The outcome for one partition. `stale`: it has changed since the user saw it, and nothing was done."""

    key: str
    outcome: Literal["done", "stale", "refused", "missing"]
    detail: str
    partition: PartitionRow | None


class ActionResults(BaseModel):
    """The outcome for each partition, in the order of the request."""

    results: list[ActionResult]
