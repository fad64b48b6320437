"""The program of a driver in a YARN container: it brings the job's settings, and runs the job's program with them.

YARN gives the files of `--files` to every executor as well, and keeps them on each node after the job. Only the program
of spark-submit goes to the driver's container alone. So the operator writes a copy of this module, which ends with a
call of `run`. The copy on the node is deleted before the program starts, the copy in the staging folder once the job
has a connection to the cluster's filesystem.
"""

import os
import runpy
import sys
from pathlib import Path


def run(program: str, settings: str) -> None:
    """Put the settings where the program's first argument says, and run the program.

    :param program: the program's file name in the container.
    :param settings: the job's settings as JSON.
    """
    os.environ["COORDINATION_STAGED_PROGRAM"] = Path(sys.argv[0]).name
    own = Path(sys.argv[0]).resolve()  # the container has a link to the node's copy
    try:
        own.unlink()
    except OSError as error:
        sys.stdout.write("start WARNING __main__: %s with the settings stays on this node: %s\n" % (own, error))
    descriptor = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(settings)
    sys.argv[0] = program
    runpy.run_path(program, run_name="__main__")
