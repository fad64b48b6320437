"""What a person asks of a supervisor, and what becomes of it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StrictBool, StrictInt, StringConstraints

from airflow_provider_coordination.sources.reset_targets import EARLIEST
from airflow_provider_coordination.ui.models.actions import ReasonBody
from airflow_provider_coordination.ui.models.supervisors import SupervisorStatus
from airflow_provider_coordination.ui.models.values import MAX_PARTITIONS_AT_ONCE


class SubmitBody(ReasonBody):
    """A spec, and why it is submitted.

    `replacing` is the version that it was made from: another one stays. The source is asked first unless `connect` is
    false.
    """

    spec: dict[str, Any]
    replacing: StrictInt | None = None
    connect: StrictBool = True


class ResetAllBody(ReasonBody):
    """Where every source is read from, and why."""

    to: Annotated[str, StringConstraints(min_length=1, max_length=200)] = EARLIEST


class ResetBody(ResetAllBody):
    """Where a source is read from, or the partitions in `positions`, each from its own; and why."""

    positions: Annotated[
        dict[str, Annotated[str, StringConstraints(min_length=1, max_length=200)]] | None,
        Field(min_length=1, max_length=MAX_PARTITIONS_AT_ONCE),
    ] = None


class SubmissionFacts(BaseModel):
    """What became of a spec: the version that rules, and what follows from it."""

    version: int
    change: Literal["NONE", "COSMETIC", "SUPERVISION", "JOBS"]
    consequence: str
    warnings: list[str]
    supervisor: SupervisorStatus


class ResetOutcomeFacts(BaseModel):
    """What became of a partition; `error` says why nothing was done, and is empty if it was."""

    partition_key: str
    action: str
    error: str


class ResetFacts(BaseModel):
    """What became of a reset; `left` are the partitions that stay as they are, and why."""

    outcomes: list[ResetOutcomeFacts]
    left: dict[str, str]
    warnings: list[str]
    supervisor: SupervisorStatus


class VerbOutcomeFacts(BaseModel):
    """What a verb for all came to for one supervisor; `detail` says why nothing was done.

    `has_failed`: it makes sense as the supervisor stands, and may be tried again.
    """

    source: str
    is_done: bool
    detail: str
    has_failed: bool


class VerbOutcomes(BaseModel):
    """What a verb for all supervisors came to, by source."""

    results: list[VerbOutcomeFacts]
