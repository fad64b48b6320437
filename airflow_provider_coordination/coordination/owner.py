"""The owner of a lease: one worker process of one task try, never just a host.

In Data Prepper, the owner is the host's name, so two processes on a host are one owner and both may write. That cannot
happen here.
"""

from __future__ import annotations

import secrets
import socket
from typing import NamedTuple

PARTS = 7
"""The minimum number of parts of an owner; a run's id may contain the separator."""


class TaskTry(NamedTuple):
    """The task try to which an owner belongs."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    try_number: int


def new_owner(dag_id: str, run_id: str, task_id: str, map_index: int, try_number: int) -> str:
    """Return a new owner for one try of one task; unique for every call.

    :param map_index: Airflow's map index; -1 for a task that is not mapped.
    """
    return ":".join(
        (socket.gethostname(), dag_id, run_id, task_id, str(map_index), str(try_number), secrets.token_hex(4))
    )


def task_of(owner: str) -> TaskTry | None:
    """Return the task try of an owner from `new_owner`; None if the name has another format."""
    parts = owner.split(":")
    if len(parts) < PARTS:
        return None
    _, dag_id, *run, task_id, map_index, try_number, _ = parts
    try:
        return TaskTry(dag_id, ":".join(run), task_id, int(map_index), int(try_number))
    except ValueError:
        return None


def is_earlier_try(owner: str, than: str) -> bool:
    """Return whether an owner belongs to an earlier try of the same task in the same run than another owner."""
    earlier, later = task_of(owner), task_of(than)
    if earlier is None or later is None:
        return False
    return earlier._replace(try_number=0) == later._replace(try_number=0) and earlier.try_number < later.try_number
