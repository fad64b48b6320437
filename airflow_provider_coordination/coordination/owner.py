"""Who holds a lease: one worker process of one task try, never just a host.

Data Prepper's owner is the host's name, so two processes on a host are one owner there and both may write; ours never
are.
"""

from __future__ import annotations

import secrets
import socket
from typing import NamedTuple

PARTS = 7
"""An owner has at least so many parts; a run's id may hold the separator."""


class TaskTry(NamedTuple):
    """The try of a task that an owner stands for."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    try_number: int


def new_owner(dag_id: str, run_id: str, task_id: str, map_index: int, try_number: int) -> str:
    """Return the owner of one try of one task, different at every call.

    :param map_index: -1 for a task that is not mapped, as Airflow counts.
    """
    return ":".join(
        (socket.gethostname(), dag_id, run_id, task_id, str(map_index), str(try_number), secrets.token_hex(4))
    )


def task_of(owner: str) -> TaskTry | None:
    """Return the task try that an owner, as `new_owner` made it, stands for; None if it is of another form."""
    parts = owner.split(":")
    if len(parts) < PARTS:
        return None
    _, dag_id, *run, task_id, map_index, try_number, _ = parts
    try:
        return TaskTry(dag_id, ":".join(run), task_id, int(map_index), int(try_number))
    except ValueError:
        return None


def is_earlier_try(owner: str, than: str) -> bool:
    """Tell whether an owner stands for an earlier try of a task, in the same run, than another one."""
    earlier, later = task_of(owner), task_of(than)
    if earlier is None or later is None:
        return False
    return earlier._replace(try_number=0) == later._replace(try_number=0) and earlier.try_number < later.try_number
