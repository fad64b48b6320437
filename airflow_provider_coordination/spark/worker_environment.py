"""Environment variables of the Python workers, which have to be there before a worker starts.

By default both Arrow and the C library return memory to the system soon after use. A worker that lands needs the same
amount again for the next page, and up to half of its processor time went into pages of memory that the kernel had to
clear again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

WORKER_ENVIRONMENT = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # the C library's, which the settings below hold for
    "MALLOC_ARENA_MAX": "2",  # threads reuse each other's memory
    "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),  # bytes; what is larger goes back to the system at once
    "MALLOC_TOP_PAD_": str(16 * 2**20),  # bytes that are asked of the system at a time
    "MALLOC_TRIM_THRESHOLD_": str(256 * 2**20),  # bytes of free memory that a worker keeps
}
"""The names and values; a C library other than glibc ignores its part."""


def set_worker_environment(context: SparkContext) -> None:
    """Give the Python workers of a Spark context these variables; those that `spark.executorEnv` names stay.

    Other processes of an executor do not get them.
    """
    for name, value in WORKER_ENVIRONMENT.items():
        context.environment.setdefault(name, value)
