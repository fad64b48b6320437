"""The bodies of requests. A reason is required for every action."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StringConstraints,
    field_validator,
)

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import check_partition_key
from airflow_provider_coordination.sources.reset_targets import EARLIEST

MAX_REASON_CHARACTERS = 500
MAX_PARTITIONS_AT_ONCE = 500

NO_NUL = r"^[^\x00]*$"
"""What every store accepts."""


def _usable_key(text: str) -> str:
    try:
        check_partition_key(text)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None
    return text


Key = Annotated[str, AfterValidator(_usable_key)]
"""A key of a partition or of another item that every store accepts."""

Reason = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_REASON_CHARACTERS)]
Position = Annotated[str, StringConstraints(min_length=1, max_length=200)]
"""A target position of a reset: `earliest`, `latest`, an instant or a sequence number."""


class ReasonBody(BaseModel):
    """The reason for an action."""

    model_config = ConfigDict(extra="forbid")

    reason: Reason


class PartitionVersion(BaseModel):
    """A partition and the version of it that the user saw."""

    model_config = ConfigDict(extra="forbid")

    key: Key
    version: StrictInt


class ActionBody(ReasonBody):
    """An action on partitions.

    :param partitions: the partitions, each with the version that the user saw.
    :param to: the target position of a `reset`.
    """

    partitions: Annotated[list[PartitionVersion], Field(min_length=1, max_length=MAX_PARTITIONS_AT_ONCE)]
    to: Position | None = None

    @field_validator("partitions")
    @classmethod
    def _each_once(cls, partitions: list[PartitionVersion]) -> list[PartitionVersion]:
        if len({item.key for item in partitions}) < len(partitions):
            raise ValueError("a key occurs twice; send each partition once")
        return partitions


class SuspendBody(ReasonBody):
    """The reason for a suspension. `new_source` allows a source that the store does not know yet."""

    new_source: StrictBool = False


class ResumeBody(ReasonBody):
    """The reason to resume a source. `since` is the start of the suspension that the user saw."""

    since: AwareDatetime | None = None


class SubmitBody(ReasonBody):
    """A spec, and why it is submitted.

    `replacing` is the version that it was made from. If another version is in effect, it stays. The spec is checked
    against the source first unless `connect` is false.
    """

    spec: dict[str, Any]
    replacing: StrictInt | None = None
    connect: StrictBool = True


class ResetAllBody(ReasonBody):
    """The target position of a reset of every source, and the reason."""

    to: Position = EARLIEST


class ResetBody(ResetAllBody):
    """The target position of a reset of a source, or of each partition in `positions`, and the reason.

    With `forget`, all partitions of a suspended or terminated supervisor are removed instead.
    """

    forget: StrictBool = False
    positions: Annotated[dict[str, Position] | None, Field(min_length=1, max_length=MAX_PARTITIONS_AT_ONCE)] = None


class ReleaseBody(BaseModel):
    """The body of a release.

    :param positive: whether the data arrived.
    :param handle: the handle to release; optional if the set has one handle that is released from outside.
    :param reason: why the batch is rejected; required if `positive` is false.
    :param release_id: the identity of the release, which a repeated call repeats; the handle's name by default.
    :param version: the version of the set that the caller saw. If the set has changed since, nothing is released.
    """

    model_config = ConfigDict(extra="forbid")

    positive: StrictBool
    handle: str | None = None
    reason: str | None = None
    release_id: str | None = None
    version: StrictInt | None = None
