"""Actions on sources, partitions and supervisors, and their outcomes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

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

from airflow_provider_coordination.sources.reset_targets import EARLIEST
from airflow_provider_coordination.ui.models.partitions import PartitionRow
from airflow_provider_coordination.ui.models.supervisors import SupervisorStatus
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

    to: Annotated[str, StringConstraints(min_length=1, max_length=200)] = EARLIEST


class ResetBody(ResetAllBody):
    """The target position of a reset of a source, or of each partition in `positions`, and the reason.

    With `forget`, all partitions of a suspended or terminated supervisor are removed instead.
    """

    forget: StrictBool = False
    positions: Annotated[
        dict[str, Annotated[str, StringConstraints(min_length=1, max_length=200)]] | None,
        Field(min_length=1, max_length=MAX_PARTITIONS_AT_ONCE),
    ] = None


class SubmissionFacts(BaseModel):
    """The outcome of a submission: the version that is in effect, and its consequence."""

    version: int
    change: Literal["NONE", "COSMETIC", "SUPERVISION", "JOBS"]
    consequence: str
    warnings: list[str]
    supervisor: SupervisorStatus


class ResetOutcomeFacts(BaseModel):
    """The outcome for one partition. `error` is why nothing was done, and empty on success."""

    partition_key: str
    action: str
    error: str


class ResetFacts(BaseModel):
    """The outcome of a reset. `unchanged` has the partitions that were not reset, and why."""

    outcomes: list[ResetOutcomeFacts]
    unchanged: dict[str, str]
    warnings: list[str]
    supervisor: SupervisorStatus


class VerbOutcomeFacts(BaseModel):
    """The outcome for one supervisor of an action on all. `detail` is why nothing was done.

    `has_failed` is true if the action applies to the supervisor's state, and may be tried again.
    """

    source: str
    is_done: bool
    detail: str
    has_failed: bool


class VerbOutcomes(BaseModel):
    """The outcomes of an action on all supervisors, by source."""

    results: list[VerbOutcomeFacts]
