"""Values that several models share: keys, reasons, owners."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, StringConstraints

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import check_partition_key

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


class Owner(BaseModel):
    """The owner of a lease. All fields but `name` are null if the owner is not a task."""

    name: str
    host: str | None = None
    dag_id: str | None = None
    run_id: str | None = None
    task_id: str | None = None
    map_index: int | None = None
    try_number: int | None = None
