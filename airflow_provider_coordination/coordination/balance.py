"""Decides how many partitions a worker should hold, and which ones should move. Pure decisions, no I/O.

Every worker decides for itself from the state in the store. Workers that see the same state make compatible decisions,
because ties are broken by name and nothing is random. There is no leader to elect, to lose, or to wait for.

From the Kinesis Client Library: the even share rounded up, taking leases from others only if none is free, one lease
at a time, and, when balancing by throughput, only moves that make a difference. Unlike there, workers without leases
are known, finished leases do not count, a lease that never had an owner is not simply taken by the first worker that
sees it, and workers without statistics are not treated as if they were all equal.

A worker's part is proportional to its slots: how many tasks it runs at the same time. That is known before it has read
anything. The KCL compares the use of the processor instead, which follows from the leases of a worker as well.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

BY_COUNT = "count"
BY_THROUGHPUT = "throughput"
BALANCE_BY = (BY_COUNT, BY_THROUGHPUT)
"""What is balanced: the number of leases of each worker, or the bytes per second that they yield."""

HYSTERESIS = 0.1
"""To balance throughput, leases move between workers whose loads differ by more than this fraction of the average load:
the Kinesis Client Library's rebalance threshold. The gain of moving a larger lease must exceed it as well."""
STEP = 8
"""The number of steps in which a new worker gets its share. One lease at a time takes hours with thousands of them."""
SMALL_STEP = 4
"""How many leases a new worker requests at a time at least; if it got one by one, it would deliver in between."""
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
    :param slots: how many tasks it runs at the same time, at least 1; None if unknown, which counts as the mean of the
        other workers.
    """

    owner: str
    max_leases: int | None = None
    hands_over: bool = True
    slots: int | None = None


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

    :param balance_by: `BY_COUNT` balances the number of leases, `BY_THROUGHPUT` the bytes per second; for each slot.
    :param max_leases_to_steal: how many leases a worker requests from others at a time; None for a fraction `1 / STEP`
        of its share, at least `SMALL_STEP`.
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


def capacities(members: Sequence[Member]) -> list[Fraction]:
    """Return the capacity of each worker: its slots in proportion to the mean, so 1 if all have the same number."""
    known = [member.slots for member in members if member.slots is not None]
    mean = Fraction(sum(known), len(known)) if known else Fraction(1)
    return [Fraction(1) if member.slots is None else member.slots / mean for member in members]


def fair_shares(leases: int, members: Sequence[Member]) -> list[Fraction]:
    """Return how many leases each worker should hold: in proportion to its capacity, within its limit.

    :param leases: the total number of leases. They are all shared, unless every worker has a limit.
    """
    sizes = capacities(members)
    left, size_left = Fraction(leases), sum(sizes, Fraction(0))

    def leases_at_limit(number: int) -> Fraction | float:
        limit = members[number].max_leases
        return math.inf if limit is None else limit / sizes[number]

    shares = [Fraction(0)] * len(members)
    for number in sorted(range(len(members)), key=leases_at_limit):  # what one may not hold is left to those after it
        limit, share = members[number].max_leases, left * sizes[number] / size_left
        shares[number] = share if limit is None else min(share, Fraction(limit))
        left, size_left = left - shares[number], size_left - sizes[number]
    return shares


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
        by_owner = list(self._members.values())
        self._capacities = dict(zip(self._members, map(float, capacities(by_owner)), strict=True))
        self._shares = dict(zip(self._members, fair_shares(self._total, by_owner), strict=True))
        self._bounds = {o: (math.floor(share), math.ceil(share)) for o, share in self._shares.items()}
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
        if is_own and not (self._has_room(move.taker) and self._helps(move)):
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
        at_once = self._rules.max_leases_to_steal
        most = {o: at_once or max(SMALL_STEP, int(share / STEP)) for o, share in self._shares.items()}
        while move := self._next_move({o for o, n in asking.items() if n < most[o]}):
            self._move(move)
            asking[move.taker] += 1
            if move.taker == me:
                yield move

    def _share_by_count(self, me: str) -> int:
        expected = [Member(owner="")] * (self._rules.expected_workers - len(self._members))
        shares = fair_shares(self._total, [*self._members.values(), *expected])
        return math.ceil(shares[list(self._members).index(me)]) - len(self._held[me])

    def _share_by_throughput(self, me: str, free: Sequence[Lease]) -> int:
        # Expected workers have no name yet, so they come after the existing ones.
        loads = [(self._load(o), len(held), 0, o) for o, held in self._held.items()]
        loads += [(0.0, 0, 1, str(n)) for n in range(self._rules.expected_workers - len(self._members))]
        mine = 0
        for lease in free:
            open_to = [each for each in loads if each[2] or each[1] < self._limit(each[3])]
            if not open_to:
                break
            lightest = min(open_to)
            load, count, expected, owner = lightest
            added = self._weights[lease.key] / (1.0 if expected else self._capacities[owner])
            loads[loads.index(lightest)] = (load + added, count + 1, expected, owner)
            mine += owner == me and not expected
        return mine

    def _next_move(self, may_request: Collection[str]) -> Move | None:
        lightest_first = sorted(self._members, key=lambda owner: (self._load(owner), len(self._held[owner]), owner))
        for taker in lightest_first:
            if (
                taker not in may_request
                or not self._hands_over(taker)
                or not self._has_room(taker)
                or self._has_its_share(taker)
            ):
                continue
            for giver in sorted(lightest_first, key=lambda o: (-self._load(o), -len(self._held[o]), o)):
                if self._load(giver) - self._load(taker) <= self._threshold:
                    break  # no move can gain more than the whole difference
                if not self._hands_over(giver):
                    continue
                key = self._best(taker, giver)
                if key is None:
                    continue
                move = Move(key=key, giver=giver, taker=taker)
                # If leases are small, no single move gains much; together they gain the whole difference.
                least = min(self._threshold, self._difference_of(move) / 2)
                if self._helps(move, 0.0 if self._rules.balance_by == BY_COUNT else least):
                    return move
        return None

    def _load(self, owner: str) -> float:
        """Return what a worker holds for its capacity: the leases beyond its share, or the throughput for each slot."""
        if self._rules.balance_by == BY_COUNT:
            return len(self._held[owner]) - float(self._shares[owner])
        return self._loads[owner] / self._capacities[owner]

    def _helps(self, move: Move, least_gain: float = 0.0) -> bool:
        """Return whether a move brings two workers closer to their shares.

        A share is rounded. By count, a worker that holds its share, rounded up or down, needs no lease and need not
        give one. So a move is never reversed.

        :param least_gain: by throughput, the move must gain more than this.
        """
        if self._rules.balance_by == BY_THROUGHPUT:
            return self._gain(move) > least_gain
        taker, giver = len(self._held[move.taker]), len(self._held[move.giver])
        (least, most), (least_of_giver, most_of_giver) = self._bounds[move.taker], self._bounds[move.giver]
        return (taker < least and giver > least_of_giver) or (taker < most and giver > most_of_giver)

    @property
    def _threshold(self) -> float:
        """Two workers whose loads differ by no more than this stay as they are."""
        if self._rules.balance_by == BY_COUNT:
            return 1.0
        return HYSTERESIS * sum(self._loads.values()) / len(self._loads)

    def _gain(self, move: Move) -> float:
        """Return by how much a move reduces the difference between two workers."""
        difference = self._load(move.giver) - self._load(move.taker)
        return difference - abs(difference - self._difference_of(move))

    def _difference_of(self, move: Move) -> float:
        """Return by how much a move changes the difference between two workers."""
        return self._weights[move.key] * self._change(move.taker, move.giver)

    def _change(self, taker: str, giver: str) -> float:
        """Return by how much a lease of weight 1 changes the difference between two workers."""
        return 1 / self._capacities[taker] + 1 / self._capacities[giver]

    def _best(self, taker: str, giver: str) -> str | None:
        """Return the key of the lease whose move reduces the difference most; None if none may move.

        Its weight is the nearest to what would end the difference, from below or above. The first key wins a tie.
        """
        if giver not in self._sorted:
            self._sorted[giver] = sorted((self._weights[key], key) for key in self._held[giver] - self._moved)
        leases = self._sorted[giver]
        ideal = (self._load(giver) - self._load(taker)) / self._change(taker, giver)
        above = bisect_left(leases, (ideal, ""))
        candidates = [key for _, key in leases[above : above + 1]]
        if above:
            candidates.append(leases[bisect_left(leases, (leases[above - 1][0], ""))][1])
        gains = [(-self._gain(Move(key=key, giver=giver, taker=taker)), key) for key in candidates]
        return min(gains, default=(0.0, None))[1]

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
        least, most = self._bounds[owner]
        # With shares of 3.3 each, one of three workers holds 4 of 10.
        larger = self._total - sum(low for low, _ in self._bounds.values())
        more = sum(len(self._held[o]) > low for o, (low, high) in self._bounds.items() if o != owner and high > low)
        return len(self._held[owner]) >= (least + (more < larger) if most > least else least)

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
