"""What jobs of tests ingest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from airflow_provider_coordination.spark.ingestion import Ingestion

NAMES = frozenset(each.name for each in fields(Ingestion))


def with_ingestion(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an operator of jobs: those that `Ingestion` has become one of it."""
    given = {name: value for name, value in arguments.items() if name in NAMES}
    others = {name: value for name, value in arguments.items() if name not in NAMES}
    return {"ingestion": Ingestion(**given), **others}
