"""How many partitions a worker should hold, and which ones should move. Pure decisions, no I/O.

Every worker decides for itself, from what the store says about all; two that see the same decide what fits together,
since ties are broken by names and nothing is random. There is no leader to elect, to lose, or to wait for.

From the Kinesis Client Library: the even part rounded up, taking from others only where nothing is free, one lease at
a time, and, by throughput, moves only where they make a difference. Unlike there, workers without leases are known,
finished leases do not count, a lease that was never owned is not the prey of whoever looks first, and the workers
that have nothing to tell about themselves are not treated as if they were all the same.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

BY_COUNT = "count"
BY_THROUGHPUT = "throughput"
BALANCE_BY = (BY_COUNT, BY_THROUGHPUT)
"""What workers share evenly: how many leases each holds, or how many bytes a second they give."""

HYSTERESIS = 0.1
"""For the sake of throughput leases move between workers that differ by more than this part of the average load: the
Kinesis Client Library's rebalance threshold. A lease that is larger has to even out more than that itself."""
STEP = 8
"""In how many steps a new worker comes by its share: with thousands of partitions, one at a time takes hours."""
MAX_THROUGHPUT = 2.0**63
"""More than this many bytes a second was not measured but made up."""


@dataclass(frozen=True, kw_only=True)
class Lease:
    """An unfinished partition that a worker holds, or could hold now.

    :param key: the partition's key.
    :param owner: whose it is; None if it is free.
    :param throughput: how many bytes a second it gives; None if that is not known.
    :param free_seconds: for how long it has been seen free.
    """

    key: str
    owner: str | None = None
    throughput: float | None = None
    free_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Member:
    """A live worker.

    :param owner: who it is.
    :param max_leases: most leases that it holds; None for any number.
    :param listens: whether it hands over what others ask it for: a worker of an older version does not.
    """

    owner: str
    max_leases: int | None = None
    listens: bool = True


@dataclass(frozen=True, kw_only=True)
class Move:
    """A lease that one worker asks another for.

    :param key: the partition's key.
    :param giver: who holds it.
    :param taker: who asks for it.
    """

    key: str
    giver: str
    taker: str


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How to share.

    :param balance_by: `BY_COUNT`: as many leases each; `BY_THROUGHPUT`: as many bytes a second each.
    :param max_leases_to_steal: how many leases a worker asks others for at a time; None for a `STEP` of an even share.
    :param expected_workers: how many workers are expected at the least.
    :param patience_seconds: what stays free longer than this is taken by whoever may hold more.
    """

    balance_by: str = BY_COUNT
    max_leases_to_steal: int | None = 1
    expected_workers: int = 1
    patience_seconds: float = math.inf


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one worker should do.

    :param acquire: how many free leases it should take.
    :param ask: the moves that it should ask for.
    :param drop: the keys of the moves that it asked for and that serve no purpose any more.
    """

    acquire: int = 0
    ask: tuple[Move, ...] = ()
    drop: frozenset[str] = frozenset()


def fair_share(leases: int, limits: Sequence[int | None]) -> int:
    """Return the most leases a worker without a limit should hold: an even part, rounded up, of what the limits of
    others leave over.

    :param leases: how many there are.
    :param limits: of each worker, the one that asks included: most leases that it holds, None for any number.
    """
    left, workers = leases, len(limits)
    for limit in sorted(limit for limit in limits if limit is not None):
        if limit * workers >= left:
            break
        left, workers = left - limit, workers - 1
    return math.ceil(left / workers) if workers else max((limit or 0 for limit in limits), default=leases)


def plan(
    me: str, leases: Sequence[Lease], members: Collection[Member], under_way: Sequence[Move], rules: Rules
) -> Plan:
    """Return what one worker should do, given what all of them hold.

    :param me: the worker; one of the members.
    :param leases: what there is to share, those that are free in the order in which they are acquired.
    :param members: the live workers.
    :param under_way: what was asked for and not handed over yet, the oldest first: counts as done.
    """
    balance = _Balance(leases, members, rules)
    done = [(move, balance.apply(move, is_asked_again=move.taker == me)) for move in under_way]
    free = [lease for lease in leases if lease.owner is None]
    return Plan(
        acquire=balance.seats(me, free),
        ask=() if free else tuple(balance.moves_of(me, [move for move, is_done in done if is_done])),
        drop=frozenset(move.key for move, is_done in done if move.taker == me and not is_done),
    )


class _Balance:
    """Who holds what, if all that was asked for is handed over; changes as moves are applied."""

    def __init__(self, leases: Sequence[Lease], members: Collection[Member], rules: Rules) -> None:
        self._rules = rules
        self._total = len(leases)
        self._members = {member.owner: member for member in sorted(members, key=lambda m: m.owner)}
        self._weights = _weights(leases, rules.balance_by)
        self._held: dict[str, set[str]] = {owner: set() for owner in self._members}
        self._loads = dict.fromkeys(self._members, 0.0)
        # What each holds in truth, and what it takes beside it: nobody gives away what nobody has taken yet.
        self._occupied = dict.fromkeys(self._members, 0)
        self._moved: set[str] = set()
        self._sorted: dict[str, list[tuple[float, str]]] = {}  # what each may give, by weight and key
        for lease in leases:
            if lease.owner in self._members:
                self._put(lease.key, lease.owner)

    def apply(self, move: Move, *, is_asked_again: bool) -> bool:
        """Do a move; tell whether it was done.

        :param is_asked_again: whether it is left undone if it does not help any more.
        """
        if move.taker not in self._members or move.key not in self._held.get(move.giver, ()):
            return False
        if is_asked_again and not (
            self._has_room(move.taker) and self._gain(move.taker, move.giver, self._weights[move.key]) > 0
        ):
            return False
        self._move(move)
        return True

    def seats(self, me: str, free: Sequence[Lease]) -> int:
        """Return how many free leases a worker should take."""
        limit = self._members[me].max_leases
        room = self._total if limit is None else limit - self._occupied[me]
        left_over = sum(lease.free_seconds > self._rules.patience_seconds for lease in free)
        fair = self._count_seats(me) if self._rules.balance_by == BY_COUNT else self._load_seats(me, free)
        return max(0, min(room, max(fair, left_over)))

    def moves_of(self, me: str, under_way: Sequence[Move]) -> Iterator[Move]:
        """Yield what a worker should ask for, while others ask for what they should.

        :param under_way: the moves that were done already.
        """
        asking = {owner: sum(move.taker == owner for move in under_way) for owner in self._members}
        most = self._rules.max_leases_to_steal or max(1, self._total // len(self._members) // STEP)
        while move := self._next_move({o for o, n in asking.items() if n < most}):
            self._move(move)
            asking[move.taker] += 1
            if move.taker == me:
                yield move

    def _count_seats(self, me: str) -> int:
        limits = [member.max_leases for member in self._members.values()]
        limits += [None] * (self._rules.expected_workers - len(limits))
        return fair_share(self._total, limits) - len(self._held[me])

    def _load_seats(self, me: str, free: Sequence[Lease]) -> int:
        # Those that are expected have no name yet: they come after those that are there.
        loads = [(load, len(self._held[o]), 0, o) for o, load in self._loads.items()]
        loads += [(0.0, 0, 1, str(n)) for n in range(self._rules.expected_workers - len(self._members))]
        mine = 0
        for lease in free:
            open_to = [place for place in loads if place[2] or place[1] < self._limit(place[3])]
            if not open_to:
                break
            least = min(open_to)
            load, count, expected, owner = least
            loads[loads.index(least)] = (load + self._weights[lease.key], count + 1, expected, owner)
            mine += owner == me and not expected
        return mine

    def _next_move(self, may_ask: Collection[str]) -> Move | None:
        least_first = sorted(self._members, key=lambda owner: (self._loads[owner], len(self._held[owner]), owner))
        for taker in least_first:
            if (
                taker not in may_ask
                or not self._listens(taker)
                or not self._has_room(taker)
                or self._has_its_part(taker)
            ):
                continue
            for giver in sorted(least_first, key=lambda o: (-self._loads[o], -len(self._held[o]), o)):
                if self._loads[giver] - self._loads[taker] <= self._threshold:
                    break  # no move can gain more than the whole difference
                if not self._listens(giver):
                    continue
                key = self._best(taker, giver)
                if key is None:
                    continue
                weight = self._weights[key]
                # Of many small leases no single one gains much; what they gain together is the difference.
                if self._gain(taker, giver, weight) > min(self._threshold, weight):
                    return Move(key=key, giver=giver, taker=taker)
        return None

    @property
    def _threshold(self) -> float:
        """What a move must gain more than: with one lease more or less nothing would be won."""
        if self._rules.balance_by == BY_COUNT:
            return 1.0
        return HYSTERESIS * sum(self._loads.values()) / len(self._loads)

    def _gain(self, taker: str, giver: str, weight: float) -> float:
        """Return by how much a move makes the difference between two workers smaller."""
        difference = self._loads[giver] - self._loads[taker]
        return difference - abs(difference - 2 * weight)

    def _best(self, taker: str, giver: str) -> str | None:
        """Return the lease whose move evens out most, of equals the first; None if none may move.

        That is one whose weight is next to half the difference, from below or above.
        """
        if giver not in self._sorted:
            self._sorted[giver] = sorted((self._weights[key], key) for key in self._held[giver] - self._moved)
        leases = self._sorted[giver]
        above = bisect_left(leases, ((self._loads[giver] - self._loads[taker]) / 2, ""))
        found = leases[above : above + 1]
        if above:
            found.append(leases[bisect_left(leases, (leases[above - 1][0], ""))])
        return min(((-self._gain(taker, giver, weight), key) for weight, key in found), default=(0.0, None))[1]

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

    def _listens(self, owner: str) -> bool:
        return self._members[owner].listens

    def _has_its_part(self, owner: str) -> bool:
        """Whether a worker holds as many leases as it should: one more would have to move on to somebody else."""
        if self._rules.balance_by != BY_COUNT:
            return False
        limits = [member.max_leases for member in self._members.values()]
        return len(self._held[owner]) >= fair_share(self._total, limits)

    def _limit(self, owner: str) -> float:
        limit = self._members[owner].max_leases
        return math.inf if limit is None else limit

    def _has_room(self, owner: str) -> bool:
        return self._occupied[owner] < self._limit(owner)


def _weights(leases: Sequence[Lease], balance_by: str) -> dict[str, float]:
    """Return what each lease counts; never anything that cannot be compared."""
    known = {
        lease.key: lease.throughput
        for lease in leases
        if lease.throughput is not None and 0 <= lease.throughput < MAX_THROUGHPUT
    }
    if balance_by == BY_COUNT or not sum(known.values()):
        return dict.fromkeys((lease.key for lease in leases), 1.0)
    mean = sum(known.values()) / len(known)
    return {lease.key: known.get(lease.key, mean) for lease in leases}
