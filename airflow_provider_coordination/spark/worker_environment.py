"""Environment variables of the Python workers, which must be set before a worker starts.

By default both Arrow and the C library return memory to the system soon after use. A landing worker needs the same
amount again for the next page, and up to half of its CPU time went into memory pages that the kernel had to clear
again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

WORKER_ENVIRONMENT = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # the C library's pool, to which the settings below apply
    "MALLOC_ARENA_MAX": "2",  # threads reuse each other's memory
    "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),  # bytes; larger blocks go back to the system at once
    "MALLOC_TOP_PAD_": str(16 * 2**20),  # bytes that are requested from the system at a time
    "MALLOC_TRIM_THRESHOLD_": str(256 * 2**20),  # bytes of free memory that a worker keeps
}
"""The variables by name; a C library other than glibc ignores those for it."""


def set_worker_environment(context: SparkContext) -> None:
    """Set these variables for the Python workers of a Spark context; variables in `spark.executorEnv` take precedence.

    Other processes of an executor do not get them.
    """
    for name, value in WORKER_ENVIRONMENT.items():
        context.environment.setdefault(name, value)
