"""Delivery: a landed batch goes into the sinks once, however often it is tried and by however many workers.

What may become visible carries the fencing token of a lease, and goes with the lease. An attempt prepares what a sink
is to take, asks the store whether it still may commit that, and commits. The next owner first writes its lease to the
store, then takes away what was prepared, then prepares its own. However the two interleave, the former owner reads in
the store that it lost the lease, or finds what it prepared gone.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.sources.landed import LandedBatch
from airflow_provider_coordination.spark.concurrency import side_by_side
from airflow_provider_coordination.spark.executor_errors import ExecutorError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

Transform = Callable[["DataFrame"], "DataFrame"]
Batch = TypeVar("Batch")
Result = TypeVar("Result")


class DeliveryError(CoordinationError):
    """A batch could not be delivered; it stays landed and is tried again."""


class SinkAwayError(DeliveryError):
    """A sink does not answer. Its batches wait, and none of them is at fault.

    :param reason: what it does not answer by.
    :param sink: the sink's name; empty where only its caller knows.
    """

    def __init__(self, reason: str, sink: str = "") -> None:
        super().__init__(f"sink {sink!r} takes nothing at present: {reason}" if sink else reason)
        self.reason = reason
        self.sink = sink


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What was made of a batch.

    :param records: how many records each sink takes of it; sinks that had it already are left out.
    :param unrouted: how many records no sink takes.
    :param left_out: how many records no transform and no sink got beside that of the dead letters, by the `Stage` at
        which that turned out; those that the transform marked or raised on included.
    :param columns: the types, by name, of what the sinks take; empty where that was not looked at.
    :param shared_file: the file that holds its rows with those of other batches, see `Attempt`; None if there is none.
    """

    records: Mapping[str, int] = field(default_factory=dict)
    unrouted: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    shared_file: str | None = None


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """The delivery of one batch, under one lease and for one acknowledgment set.

    :param batch: the batch; has a file.
    :param file: where its landed file is now, or was before it was published.
    :param folder: the folder, below any root, of the batch's partition.
    :param set_id: the acknowledgment set that waits for it.
    :param fencing_token: of the lease.
    :param source: the identifier of the source.
    :param partition_key: the partition.
    :param owner: who delivers it.
    :param progress: what makes the partition's progress anew, should the store be lost; see `LandedProgress.lasting`.
    :param shared_file: the file that holds the batch's rows with those of other batches of this delivery, in sinks that
        let batches share one; None where the batch has files of its own. Each delivery makes a new name.
    """

    batch: LandedBatch
    file: str
    folder: str
    set_id: str
    fencing_token: int
    source: str
    partition_key: str
    owner: str
    progress: Mapping[str, Any] = field(default_factory=dict)
    shared_file: str | None = None

    @property
    def batch_id(self) -> str:
        """The batch's id."""
        return self.batch.batch_id

    @property
    def has_former_owners(self) -> bool:
        """Whether others may have begun to deliver the batch: it was landed under an earlier lease."""
        return self.fencing_token != self.batch.fencing_token

    @property
    def ordinal(self) -> int:
        """The batch's number among those of its partition."""
        return self.batch.ordinal


class Delivery(Protocol):
    """Takes batches into sinks, each batch once: any number at a time, of any partitions, that owe the same sinks.

    `commit` is called after `prepare`, and after the store has confirmed that the leases and the sets are still those
    of the attempts. What it makes visible comes from a place that a later owner of the partition empties with `sweep`
    before it delivers: so a former owner that goes on commits either before the later one, or nothing.

    A commit that raises for several batches at once may have worked for some of them. Nothing is harmed by calling it
    again for some of them, or for each alone.

    Batches may be prepared for one file; see `Prepared.shared_file`. Before its commit the store has that name with
    each of them. Where one of them is out, the file is not committed: the others are prepared anew.
    """

    @property
    def sinks(self) -> Sequence[str]:
        """The names of the sinks, in the order of their commits; each owes a reference for every batch."""
        ...

    def prepare(self, attempts: Sequence[Attempt], sinks: Collection[str]) -> Mapping[str, Prepared | Exception]:
        """Do everything that nobody can see yet. A batch that cannot be delivered holds no other one.

        :param sinks: those that have not taken the batches yet.
        :returns: by batch id what will become visible, or why the batch cannot be delivered.
        :raises SinkAwayError: if nothing can be read or written at present, whatever the batch.
        """
        ...

    def commit(self, sink: str, attempts: Sequence[Attempt]) -> None:
        """Make batches visible in one sink, each whole, unless they are already; see `Sink.commit`."""
        ...

    def discard(self, attempts: Sequence[Attempt]) -> None:
        """Remove what attempts prepared and did not commit."""
        ...

    def sweep(self, tokens: Mapping[str, int]) -> None:
        """Remove what former owners of partitions prepared, which takes their right to commit it.

        :param tokens: by the partition's folder, below any root, the fencing token of the present lease; only what is
            older goes.
        """
        ...


def each_by_itself(
    batches: Sequence[Batch], act: Callable[[Batch], Result], at_once: int = 1
) -> Iterator[tuple[Batch, Result | Exception]]:
    """Act on each batch by itself.

    Where a sink does not answer, the batches behind would only wait for it again: that is the result of each.

    :param at_once: on how many at the same time.
    :returns: each batch with its result, or with what it raises.
    """
    away: list[SinkAwayError] = []

    def act_unless_away(batch: Batch) -> Result:
        if away:
            raise away[0]
        try:
            return act(batch)
        except SinkAwayError as error:
            away.append(error)
            raise

    yield from side_by_side(batches, act_unless_away, at_once)


def by_halves(
    batches: Sequence[Batch], act: Callable[[Sequence[Batch]], Result], what: str
) -> Iterator[tuple[Sequence[Batch], Result | Exception]]:
    """Act on batches together; where that raises, on each half of them, down to each batch alone.

    Where a sink does not answer, halves would only wait for it again: that is the result of each batch.

    :param what: the act, for the log.
    :raises ExecutorError: as it is.
    :returns: batches that it was done for together, with its result; or one batch with what it raises.
    """
    if not batches:
        return
    try:
        result = act(batches)
    except SinkAwayError as error:
        yield from (([batch], error) for batch in batches)
        return
    except ExecutorError:  # no batch is to blame
        raise
    except Exception as error:  # whatever it is, each batch alone either raises it or goes on
        if len(batches) == 1:
            yield batches, error
            return
        reason, _, _ = str(error).partition("\n")
        log.warning("%s of %d batches at once failed; each half is tried: %s", what, len(batches), reason)
    else:
        yield batches, result
        return
    middle = len(batches) // 2
    yield from by_halves(batches[:middle], act, what)
    yield from by_halves(batches[middle:], act, what)


def load_transform(name: str) -> Transform:
    """Return the function that `module:function` names.

    :raises ConfigurationError: if the module cannot be imported or has no such function.
    """
    module_name, _, function_name = name.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except Exception as error:  # a module may raise anything while it is imported
        raise ConfigurationError(
            f"transform {name!r} cannot be imported: {type(error).__name__}: {error}; ship its module with 'py_files'"
        ) from error
    if not callable(function):
        raise ConfigurationError(f"transform {name!r} is not a function")
    return function  # type: ignore[no-any-return]
