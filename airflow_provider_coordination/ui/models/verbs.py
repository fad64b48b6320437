"""Actions on supervisors, and their outcomes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StrictBool, StrictInt, StringConstraints

from airflow_provider_coordination.sources.reset_targets import EARLIEST
from airflow_provider_coordination.ui.models.actions import ReasonBody
from airflow_provider_coordination.ui.models.supervisors import SupervisorStatus
from airflow_provider_coordination.ui.models.values import MAX_PARTITIONS_AT_ONCE


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
