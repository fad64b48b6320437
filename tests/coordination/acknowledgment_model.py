"""A model of the transactions on acknowledgment sets and their shards, written without the code that it judges.

Every transaction that is made is compared with what was asked for, whoever asked and whoever was answered. The
progress of a partition and what is stored of a set are read as plain JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus, parse_instant
from airflow_provider_coordination.coordination.store import Acquisition
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore

PARTITIONS, SETS = "clicks|PARTITION", "clicks|ACKNOWLEDGMENT"
ENDS_BADLY = ("REJECTED", "EXPIRED")

Place = tuple[str, str]
Items = Mapping[Place, Partition | None]


@dataclass(frozen=True, kw_only=True)
class Act:
    """The operation of an actor.

    :param kind: begin, release, more, extend, cancel, expire, purge, wait, hold or order.
    :param owner: who.
    :param started: when, by their clock.
    :param set_id: which set it is about.
    :param handle: whose reference a release is of.
    :param positive: whether a release is.
    :param release_id: a release's identity.
    :param owned: whether a release is one that only the owner may make.
    :param landed: the batch that a begin lands.
    :param resets: whether an order makes a partition as new.
    """

    kind: str
    owner: str
    started: datetime
    set_id: str = ""
    handle: str = ""
    positive: bool = True
    release_id: str = ""
    owned: bool = False
    landed: str | None = None
    resets: bool = False


class CheckedStore(InMemoryStore):
    """A store that judges every transaction by the act that it belongs to."""

    def __init__(self) -> None:
        super().__init__()
        self.acts: list[Act] = []
        self.endings: dict[str, str] = {}
        self.created: list[str] = []

    def peek(self, family: str, key: str) -> Partition | None:
        return self._partitions.get((family, key))

    def of(self, family: str) -> dict[str, Partition]:
        return {key: item for (of, key), item in self._partitions.items() if of == family}

    def transact(
        self,
        *,
        update: Sequence[Partition] = (),
        create: Sequence[Partition] = (),
        new: Sequence[Partition] = (),
        unchanged: Sequence[Partition] = (),
    ) -> list[Partition]:
        places = [(p.source_identifier, p.partition_key) for p in (*update, *create, *new)]
        before = {place: self._partitions.get(place) for place in places}
        written = super().transact(update=update, create=create, new=new, unchanged=unchanged)
        self._check_effect(before, {place: self._partitions[place] for place in places})
        return written

    def acquire(self, request: Acquisition) -> list[Partition]:
        assert request.source_identifier == PARTITIONS, "nobody acquires sets"
        return super().acquire(request)

    def delete(self, partition: Partition) -> None:
        super().delete(partition)
        assert self.acts[-1].kind == "purge" and partition.progress["state"] != "PENDING"

    # Judging

    def _check_effect(self, before: Items, after: Mapping[Place, Partition]) -> None:
        act = self.acts[-1]
        ended: dict[str, str] = {}
        for (family, key), new in after.items():
            old = before[family, key]
            if family == SETS:
                _check_set(act, key, old, new)
                if new.progress["state"] != "PENDING":
                    ended[key] = new.progress["state"]
                self._check_company(act, key, old, new, before, after)
        for (family, key), new in after.items():
            if family == PARTITIONS and (old := before[family, key]) is None:
                assert new.progress["checkpoint"] == "TRIM_HORIZON" and new.status is PartitionStatus.UNASSIGNED
                self.created.append(key)
            elif family == PARTITIONS and old is not None and not act.resets:
                _check_partition(act, old, new, ended)
        for set_id, state in ended.items():
            assert set_id not in self.endings, "a set ends once"
            self.endings[set_id] = state

    def _check_company(
        self, act: Act, set_id: str, old: Partition | None, new: Partition, before: Items, after: Items
    ) -> None:
        """Judge what a set is written together with."""
        place = (PARTITIONS, new.progress["partition_key"])
        partition = before.get(place, self._partitions.get(place))
        if act.owned:
            assert partition is not None and partition.owner == act.owner, "only the owner may say so"
        if old is None:
            assert place in after, "a set is made with the note that a batch waits for it"
            return
        waits = partition is not None and any(b["acknowledgment_set"] == set_id for b in partition.progress["landed"])
        if new.progress["state"] != "PENDING":
            assert (place in after) == waits, "a set ends together with its partition, and moves no other"
        elif waits and partition is not None and partition.is_awaiting and set_id not in self._behind(act, partition):
            now = after.get(place)
            longer = _expires(new) > _expires(old)
            assert (now is not None) == longer, "a lease that waits runs as long as its sets"
            assert now is None or (now.ownership_timeout or now.priority) >= _expires(new)

    def _behind(self, act: Act, partition: Partition) -> list[str]:
        """Return the sets of an owner that may not know yet that its partition waits, because its response was lost."""
        waiting = [b["acknowledgment_set"] for b in partition.progress["landed"]]
        return waiting if (partition.owner or "").startswith(f"{act.owner}:") else []


def _expires(item: Partition) -> datetime:
    return parse_instant(item.progress["expires_at"])


def _check_set(act: Act, key: str, old: Partition | None, new: Partition) -> None:
    after = new.progress
    if old is None:
        assert act.kind == "begin"
        done = after["complete"] and not after["references"]
        assert after["state"] == ("ACKNOWLEDGED" if done else "PENDING") and not after["releases"]
        return
    before = old.progress
    assert before["state"] == "PENDING", "what has ended never changes"
    assert _expires(new) >= _expires(old), "nothing shortens an expiry"
    assert act.kind == "expire" or act.set_id == key
    ended_at = after["ended_at"] and parse_instant(after["ended_at"])
    same = {name: before[name] for name in ("references", "added", "releases", "complete")}
    if after["state"] == "EXPIRED":
        assert ended_at >= _expires(old) and same == {name: after[name] for name in same}
        return
    assert act.started < _expires(old), "what is overdue only expires"
    if after["state"] == "CANCELLED":
        assert act.kind == "cancel" and ended_at < _expires(old)
        return
    made = {name: release for name, release in after["releases"].items() if before["releases"].get(name) != release}
    assert before["releases"].keys() <= after["releases"].keys()
    if act.kind == "release":
        assert (
            made == {act.release_id: {"handle": act.handle, "positive": act.positive}}
            and act.release_id not in before["releases"]
        )
        assert before["references"][act.handle] > 0
        assert after["references"] == {**before["references"], act.handle: before["references"][act.handle] - 1}
        assert after["added"] == before["added"]
    else:
        assert act.kind in ("more", "extend") and not made
        more = sum(after["references"].values()) - sum(before["references"].values())
        assert more == after["added"] - before["added"] >= 0
        assert not (act.kind == "extend" and more)
    rejected = not all(release["positive"] for release in after["releases"].values())
    done = after["complete"] and not any(after["references"].values())
    assert after["state"] == ("REJECTED" if rejected else "ACKNOWLEDGED" if done else "PENDING")
    assert ended_at is None or ended_at < _expires(old)


def _check_partition(act: Act, old: Partition, new: Partition, ended: Mapping[str, str]) -> None:
    before, after = old.progress, new.progress
    was, now = ({b["batch_id"]: b for b in progress["landed"]} for progress in (before, after))
    order = list(was)
    if act.landed is not None and act.landed not in was and before != after:
        order.append(act.landed)
    passed = order[: len(order) - len(now)]
    assert [*passed, *now] == order, "no batch is lost, and none appears"
    for name in order:
        had, has = was.get(name, {}), now.get(name)
        _check_batch(act, had, has, ended)
    first = next(iter(now.values()), None)
    assert first is None or not first["acknowledged"], "the checkpoint is at the end of all that has no gap"
    assert after["checkpoint"] == (passed[-1].split("-")[1] if passed else before["checkpoint"])
    finished = after["is_ended"] and not now
    assert (new.status is PartitionStatus.COMPLETED) == finished, "it is finished when everything is acknowledged"
    if new.owner is not None and new.owner == old.owner:
        assert new.ownership_timeout and old.ownership_timeout and new.ownership_timeout >= old.ownership_timeout
    if act.kind == "order":
        return
    mine = [ended[b["acknowledgment_set"]] for b in was.values() if b["acknowledgment_set"] in ended]
    failed = any(state in ENDS_BADLY for state in mine) and old.status is PartitionStatus.ASSIGNED
    if failed:
        assert new.attempts == old.attempts + 1 and new.owner is None
        return
    assert new.attempts == old.attempts or (new.attempts == 0 and (passed or finished)), "failures are not forgotten"
    if mine and not finished:
        waits = any(b["acknowledgment_set"] for b in now.values())
        assert new.owner == (old.owner if waits or not old.is_awaiting else None)


def _check_batch(act: Act, had: Mapping[str, Any], has: Mapping[str, Any] | None, ended: Mapping[str, str]) -> None:
    waited = had.get("acknowledgment_set")
    # A set that nobody has to release ends as it is made.
    at_once = act.kind == "begin" and "ACKNOWLEDGED" in ended.values()
    delivered = had.get("acknowledged") or ended.get(waited or "") == "ACKNOWLEDGED" or at_once
    if has is None or has["acknowledged"]:
        assert delivered, "what is not acknowledged is not delivered"
        return
    assert not had.get("acknowledged") and ended.get(waited or "") != "ACKNOWLEDGED", "what is delivered stays so"
    if waited in ended:
        assert has["redeliver"] and has["acknowledgment_set"] is None
    elif has["acknowledgment_set"] != waited:
        assert act.kind == "begin"
