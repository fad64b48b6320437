"""The versions of a spec."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel


class SpecFacts(BaseModel):
    """A version of a spec. `spec` is null for a termination. Secrets are hidden."""

    version: int
    at: datetime
    by: str
    reason: str
    is_termination: bool
    is_from_file: bool
    change: Literal["NONE", "COSMETIC", "SUPERVISION", "JOBS"] | None
    spec: dict[str, Any] | None


class SpecDetail(SpecFacts):
    """A version of a spec with every default, as `effective`, or the reason why it cannot be read, as `problem`."""

    effective: dict[str, Any] | None
    problem: str


class SpecHistory(BaseModel):
    """The latest versions of a spec, the latest first."""

    source: str
    versions: list[SpecFacts]
