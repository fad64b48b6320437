"""Decides how many partitions a worker should hold, and which ones should move. Pure decisions, no I/O.

Every worker decides for itself from the state in the store. Workers that see the same state make compatible decisions,
because ties are broken by name and nothing is random. There is no leader to elect, to lose, or to wait for.

From the Kinesis Client Library: the even share rounded up, taking leases from others only if none is free, one lease
at a time, and, when balancing by throughput, only moves that make a difference. Unlike there, workers without leases
are known, finished leases do not count, a lease that never had an owner is not simply taken by the first worker that
sees it, and workers without statistics are not treated as if they were all equal.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

BY_COUNT = "count"
BY_THROUGHPUT = "throughput"
BALANCE_BY = (BY_COUNT, BY_THROUGHPUT)
"""What is balanced: the number of leases of each worker, or the bytes per second that they yield."""

HYSTERESIS = 0.1
"""To balance throughput, leases move between workers whose loads differ by more than this fraction of the average load:
the Kinesis Client Library's rebalance threshold. The gain of moving a larger lease must exceed it as well."""
STEP = 8
"""The number of steps in which a new worker gets its share. One lease at a time takes hours with thousands of them."""
MAX_THROUGHPUT = 2.0**63
"""Bytes per second. A larger value cannot be a real measurement."""


@dataclass(frozen=True, kw_only=True)
class Lease:
    """An unfinished partition that a worker holds, or could hold now.

    :param key: the partition's key.
    :param owner: its owner; None if it is free.
    :param throughput: the bytes per second that it yields; None if unknown.
    :param free_seconds: how long it has been known to be free.
    """

    key: str
    owner: str | None = None
    throughput: float | None = None
    free_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Member:
    """A live worker.

    :param owner: its owner name.
    :param max_leases: the maximum number of leases that it holds; None for no limit.
    :param hands_over: whether it hands over leases on request; a worker of an older version does not.
    """

    owner: str
    max_leases: int | None = None
    hands_over: bool = True


@dataclass(frozen=True, kw_only=True)
class Move:
    """The move of a lease that one worker requests from another.

    :param key: the partition's key.
    :param giver: the worker that holds it.
    :param taker: the worker that requests it.
    """

    key: str
    giver: str
    taker: str


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The rules of balancing.

    :param balance_by: `BY_COUNT` balances the number of leases, `BY_THROUGHPUT` the bytes per second.
    :param max_leases_to_steal: how many leases a worker requests from others at a time; None for a fraction `1 / STEP`
        of an even share.
    :param expected_workers: the minimum number of workers that are expected.
    :param force_after_seconds: how long a lease may stay free; after that, any worker that may hold more takes it.
    """

    balance_by: str = BY_COUNT
    max_leases_to_steal: int | None = 1
    expected_workers: int = 1
    force_after_seconds: float = math.inf


@dataclass(frozen=True, kw_only=True)
class BalancePlan:
    """The plan of one worker.

    :param acquire: how many free leases it should acquire.
    :param requests: the moves that it should request.
    :param obsolete: the keys of its earlier requests that no longer serve a purpose.
    """

    acquire: int = 0
    requests: tuple[Move, ...] = ()
    obsolete: frozenset[str] = frozenset()


def fair_share(leases: int, limits: Sequence[int | None]) -> int:
    """Return how many leases a worker without a limit should hold at most: an even share, rounded up.

    :param leases: the total number of leases.
    :param limits: the maximum number of leases of each worker, including this one; None for no limit.
    """
    share, larger = even_shares(leases, limits)
    return share + (larger > 0)


def even_shares(leases: int, limits: Sequence[int | None]) -> tuple[int, int]:
    """Return an even share of the leases that remain after workers with lower limits, and how many hold one more.

    :param leases: the total number of leases.
    :param limits: the maximum number of leases of each worker; None for no limit.
    """
    left, workers = leases, len(limits)
    for limit in sorted(limit for limit in limits if limit is not None):
        if limit * workers >= left:
            break
        left, workers = left - limit, workers - 1
    return divmod(left, workers) if workers else (max((limit or 0 for limit in limits), default=leases), 0)


def plan(
    me: str, leases: Sequence[Lease], members: Collection[Member], pending: Sequence[Move], rules: Rules
) -> BalancePlan:
    """Return the plan of one worker, given the leases of all workers.

    :param me: the worker; one of the members.
    :param leases: the leases to share; the free ones are in the order of acquisition.
    :param members: the live workers.
    :param pending: the moves that were requested and are not handed over yet, the oldest first. They count as done.
    """
    balance = _Balance(leases, members, rules)
    done = [(move, balance.apply(move, is_own=move.taker == me)) for move in pending]
    free = [lease for lease in leases if lease.owner is None]
    return BalancePlan(
        acquire=balance.free_leases_to_take(me, free),
        requests=() if free else tuple(balance.requested_moves(me, [move for move, is_done in done if is_done])),
        obsolete=frozenset(move.key for move, is_done in done if move.taker == me and not is_done),
    )


class _Balance:
    """The leases of each worker, as if all requested moves were done. Applying a move changes it."""

    def __init__(self, leases: Sequence[Lease], members: Collection[Member], rules: Rules) -> None:
        self._rules = rules
        self._total = len(leases)
        self._members = {member.owner: member for member in sorted(members, key=lambda m: m.owner)}
        self._weights = _weights(leases, rules.balance_by)
        self._held: dict[str, set[str]] = {owner: set() for owner in self._members}
        self._loads = dict.fromkeys(self._members, 0.0)
        # The leases that each worker really holds, plus those it receives: a lease cannot be passed on before its
        # receipt.
        self._occupied = dict.fromkeys(self._members, 0)
        self._moved: set[str] = set()
        self._sorted: dict[str, list[tuple[float, str]]] = {}  # the leases that each worker may give, by weight and key
        for lease in leases:
            if lease.owner in self._members:
                self._put(lease.key, lease.owner)

    def apply(self, move: Move, *, is_own: bool) -> bool:
        """Apply a move; return whether it was applied.

        :param is_own: whether this worker requested it. Its own requests are not applied if they no longer help.
        """
        if move.taker not in self._members or move.key not in self._held.get(move.giver, ()):
            return False
        if is_own and not (
            self._has_room(move.taker) and self._gain(move.taker, move.giver, self._weights[move.key]) > 0
        ):
            return False
        self._move(move)
        return True

    def free_leases_to_take(self, me: str, free: Sequence[Lease]) -> int:
        """Return how many free leases a worker should acquire."""
        limit = self._members[me].max_leases
        room = self._total if limit is None else limit - self._occupied[me]
        left_over = sum(lease.free_seconds > self._rules.force_after_seconds for lease in free)
        fair = self._share_by_count(me) if self._rules.balance_by == BY_COUNT else self._share_by_throughput(me, free)
        return max(0, min(room, max(fair, left_over)))

    def requested_moves(self, me: str, pending: Sequence[Move]) -> Iterator[Move]:
        """Yield the moves that a worker should request, given that the others request theirs.

        :param pending: the moves that were applied already.
        """
        asking = {owner: sum(move.taker == owner for move in pending) for owner in self._members}
        max_requests = self._rules.max_leases_to_steal or max(1, self._total // len(self._members) // STEP)
        while move := self._next_move({o for o, n in asking.items() if n < max_requests}):
            self._move(move)
            asking[move.taker] += 1
            if move.taker == me:
                yield move

    def _share_by_count(self, me: str) -> int:
        limits = [member.max_leases for member in self._members.values()]
        limits += [None] * (self._rules.expected_workers - len(limits))
        return fair_share(self._total, limits) - len(self._held[me])

    def _share_by_throughput(self, me: str, free: Sequence[Lease]) -> int:
        # Expected workers have no name yet, so they come after the existing ones.
        loads = [(load, len(self._held[o]), 0, o) for o, load in self._loads.items()]
        loads += [(0.0, 0, 1, str(n)) for n in range(self._rules.expected_workers - len(self._members))]
        mine = 0
        for lease in free:
            open_to = [each for each in loads if each[2] or each[1] < self._limit(each[3])]
            if not open_to:
                break
            lightest = min(open_to)
            load, count, expected, owner = lightest
            loads[loads.index(lightest)] = (load + self._weights[lease.key], count + 1, expected, owner)
            mine += owner == me and not expected
        return mine

    def _next_move(self, may_request: Collection[str]) -> Move | None:
        lightest_first = sorted(self._members, key=lambda owner: (self._loads[owner], len(self._held[owner]), owner))
        for taker in lightest_first:
            if (
                taker not in may_request
                or not self._hands_over(taker)
                or not self._has_room(taker)
                or self._has_its_share(taker)
            ):
                continue
            for giver in sorted(lightest_first, key=lambda o: (-self._loads[o], -len(self._held[o]), o)):
                if self._loads[giver] - self._loads[taker] <= self._threshold:
                    break  # no move can gain more than the whole difference
                if not self._hands_over(giver):
                    continue
                key = self._best(taker, giver)
                if key is None:
                    continue
                weight = self._weights[key]
                # If leases are small, no single move gains much; together they gain the whole difference.
                if self._gain(taker, giver, weight) > min(self._threshold, weight):
                    return Move(key=key, giver=giver, taker=taker)
        return None

    @property
    def _threshold(self) -> float:
        """A move must gain more than this: one lease more or less would only swap the two workers."""
        if self._rules.balance_by == BY_COUNT:
            return 1.0
        return HYSTERESIS * sum(self._loads.values()) / len(self._loads)

    def _gain(self, taker: str, giver: str, weight: float) -> float:
        """Return by how much a move reduces the difference between two workers."""
        difference = self._loads[giver] - self._loads[taker]
        return difference - abs(difference - 2 * weight)

    def _best(self, taker: str, giver: str) -> str | None:
        """Return the key of the lease whose move reduces the difference most; None if none may move.

        Its weight is the nearest to half the difference, from below or above. The first key wins a tie.
        """
        if giver not in self._sorted:
            self._sorted[giver] = sorted((self._weights[key], key) for key in self._held[giver] - self._moved)
        leases = self._sorted[giver]
        above = bisect_left(leases, ((self._loads[giver] - self._loads[taker]) / 2, ""))
        candidates = leases[above : above + 1]
        if above:
            candidates.append(leases[bisect_left(leases, (leases[above - 1][0], ""))])
        return min(((-self._gain(taker, giver, weight), key) for weight, key in candidates), default=(0.0, None))[1]

    def _move(self, move: Move) -> None:
        if move.giver in self._sorted and move.key not in self._moved:
            leases = self._sorted[move.giver]
            del leases[bisect_left(leases, (self._weights[move.key], move.key))]
        self._held[move.giver].remove(move.key)
        self._loads[move.giver] -= self._weights[move.key]
        self._moved.add(move.key)
        self._put(move.key, move.taker)

    def _put(self, key: str, owner: str) -> None:
        self._held[owner].add(key)
        self._occupied[owner] += 1
        self._loads[owner] += self._weights[key]

    def _hands_over(self, owner: str) -> bool:
        return self._members[owner].hands_over

    def _has_its_share(self, owner: str) -> bool:
        """Return whether a worker holds its full share; another lease would have to move on to another worker.

        If the leases cannot be shared evenly, those that hold more already keep one more.
        """
        if self._rules.balance_by != BY_COUNT:
            return False
        share, larger = even_shares(self._total, [member.max_leases for member in self._members.values()])
        more = sum(len(held) > share for other, held in self._held.items() if other != owner)
        return len(self._held[owner]) >= share + (more < larger)

    def _limit(self, owner: str) -> float:
        limit = self._members[owner].max_leases
        return math.inf if limit is None else limit

    def _has_room(self, owner: str) -> bool:
        return self._occupied[owner] < self._limit(owner)


def _weights(leases: Sequence[Lease], balance_by: str) -> dict[str, float]:
    """Return the weight of each lease; every weight is a finite number."""
    known = {
        lease.key: lease.throughput
        for lease in leases
        if lease.throughput is not None and 0 <= lease.throughput < MAX_THROUGHPUT
    }
    if balance_by == BY_COUNT or not sum(known.values()):
        return dict.fromkeys((lease.key for lease in leases), 1.0)
    mean = sum(known.values()) / len(known)
    return {lease.key: known.get(lease.key, mean) for lease in leases}
