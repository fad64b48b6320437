"""Who holds a lease: one worker process of one task try, never just a host.

Data Prepper's owner is the host's name, so two processes on a host are one owner there and both may write; ours never
are.
"""

from __future__ import annotations

import secrets
import socket


def new_owner(dag_id: str, run_id: str, task_id: str, map_index: int, try_number: int) -> str:
    """Return the owner of one try of one task, different at every call.

    :param map_index: -1 for a task that is not mapped, as Airflow counts.
    """
    return ":".join(
        (socket.gethostname(), dag_id, run_id, task_id, str(map_index), str(try_number), secrets.token_hex(4))
    )
