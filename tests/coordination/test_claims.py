"""Claims: a name belongs to one partition, whichever process crashes, comes too late or gets no response."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.claims import Claims, claim_key
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, StoreUnavailableError
from airflow_provider_coordination.coordination.partition import MAX_KEY_BYTES, Partition, PartitionStatus
from airflow_provider_coordination.coordination.store import all_partitions
from airflow_provider_coordination.coordination.supplier import GLOBAL_STATE_KEY, Page, Supplier
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.coordination.fleet import GLOBAL_FAMILY, MARGIN, TIMEOUT, Fleet, seconds
from tests.coordination.stepped_store import ProcessKilled, SteppedStore, killed
from tests.coordination.unreliable_store import NOT_ANSWERED, Fault
from tests.support.clock import ManualClock
from tests.support.depth import examples

CLAIMS = "test|clicks|CLAIM"
PARTITIONS = "test|clicks|PARTITION"


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def claiming(**names: Sequence[str]) -> Supplier:
    """A supplier that finds these partitions, each with the names that it claims."""
    return lambda _: [Page({key: {"names": list(of)} for key, of in names.items()}, claims=names)]


def claim(fleet: Fleet, name: str) -> Partition | None:
    return fleet.store.store.get(CLAIMS, claim_key(name))


def test_partition_is_created_with_its_claims(fleet: Fleet) -> None:
    a = fleet.owner("a")
    assert a.supply(claiming(p=["x", "y"])) == ["p"]
    assert fleet.stored("p").progress == {"names": ["x", "y"]}
    claims = [claim(fleet, name) for name in "xy"]
    assert [c and (c.status, c.progress) for c in claims] == [(PartitionStatus.COMPLETED, {"partition": "p"})] * 2
    assert a.claims.partition_of("y") == "p"


def test_unclaimed_names_are_reported_once_in_order(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.supply(claiming(p=["x", "y"]))
    assert a.claims.unclaimed(["z", "y", "b", "z", "x", "a"]) == ["z", "b", "a"]


def test_fully_claimed_partition_is_skipped(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    a.supply(claiming(p=["x", "y"]))
    assert b.supply(claiming(q=["y", "x"], r=["z"])) == ["r"]
    assert b.view.get("q") is None


def test_partially_claimed_partition_is_an_error(fleet: Fleet) -> None:
    """Left out, it would take the other names with it; and the state that passes them by would be written."""
    a = fleet.owner("a")
    a.supply(claiming(p=["x"]))
    with pytest.raises(
        ConfigurationError, match=r"'q': other partitions claim 1 of its 2 names, such as 'x': .* call Claims.unclaimed"
    ):
        a.supply(claiming(q=["x", "y"]))
    assert a.view.get("q") is None
    assert a.claims.unclaimed(["y"]) == ["y"]


def test_existing_partition_without_its_claims_is_an_error(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.create_partitions({"p": {}})
    with pytest.raises(ConfigurationError, match="'p' exists, but names such as 'x' do not belong to it"):
        a.supply(claiming(p=["x"]))
    assert a.claims.unclaimed(["x"]) == ["x"]


def test_claims_for_partitions_outside_the_page_are_refused(fleet: Fleet) -> None:
    with pytest.raises(ConfigurationError, match="the page claims names for 'q', which is not in its 'partitions'"):
        fleet.owner("a").supply(lambda _: [Page({"p": {}}, claims={"q": ["x"]})])


def test_page_may_mix_partitions_with_and_without_claims(fleet: Fleet) -> None:
    a = fleet.owner("a")
    page = Page({"p": {}, "q": {}, "r": {}}, claims={"q": ["x"], "r": []})
    assert sorted(a.supply(lambda _: [page]) or []) == ["p", "q", "r"]


def test_partitions_created_before_an_error_stay_claimed(fleet: Fleet) -> None:
    a = fleet.owner("a")
    with pytest.raises(ConfigurationError):
        a.supply(claiming(p=["x"], q=["x", "y"]))
    assert a.claims.partition_of("x") == "p"


@pytest.mark.parametrize(("items", "transactions"), [(4, 3), (6, 3), (7, 2), (9, 2), (10, 1)])
def test_partitions_are_created_in_few_transactions(fleet: Fleet, items: int, transactions: int) -> None:
    a = fleet.owner("a")
    a.supply(lambda _: [])
    before = fleet.global_state().version
    fleet.store.store.transaction_items = items
    assert a.supply(claiming(p=["a", "b"], q=["c", "d"], r=["e", "f"])) == ["p", "q", "r"]
    assert fleet.global_state().version - before == transactions + 2  # each renews; one acquires, one gives up
    assert {name: a.claims.partition_of(name) for name in "ace"} == {"a": "p", "c": "q", "e": "r"}


def test_partition_claims_no_more_than_a_transaction_holds(fleet: Fleet) -> None:
    a = fleet.owner("a")
    most = [f"n{n}" for n in range(a.claims.room)]
    assert a.supply(lambda _: [Page({"p": {}}, claims={"p": most})]) == ["p"]
    more = [f"m{n}" for n in range(len(most) + 1)]
    with pytest.raises(ConfigurationError, match=rf"'q' claims {len(more)} names; .* room for {len(most)}"):
        a.supply(lambda _: [Page({"q": {}}, claims={"q": more})])


def test_repeated_name_of_a_partition_is_claimed_once(fleet: Fleet) -> None:
    a = fleet.owner("a")
    assert a.supply(claiming(p=["x", "y", "x"])) == ["p"]


# Releasing


def test_released_name_can_be_claimed_again(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.supply(claiming(p=["x", "y"]))
    assert a.claims.release(["x", "never"]) == 1
    assert a.claims.unclaimed(["x", "y"]) == ["x"]
    assert a.supply(claiming(q=["x"])) == ["q"]


def test_name_reclaimed_during_the_release_stays_claimed(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    a.supply(claiming(p=["x"]))

    def released_and_claimed_again() -> None:
        assert b.claims.release(["x"]) == 1
        fleet.clock.advance(1)
        b.supply(claiming(q=["x"]))

    fleet.store.fault = Fault(before=released_and_claimed_again)  # a has read the claim, and is about to delete it
    assert a.claims.release(["x"]) == 0
    assert a.claims.partition_of("x") == "q"


def test_deletion_by_the_owner_releases_the_names(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.supply(claiming(p=["x", "y"], q=["z"]))
    fleet.clock.advance(3600)
    a.supply(claiming(r=["late"]))
    a.leases.acquire(1)
    a.leases.delete("p")
    assert a.claims.unclaimed(["x", "y", "z", "late"]) == ["x", "y"]


def test_deletion_by_a_user_releases_the_names(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.supply(claiming(p=["x"], q=["z"]))
    a.leases.acquire(2)
    a.leases.complete("p")
    fleet.clock.advance(3600)
    Administration(fleet.store, PARTITIONS, fleet.clock).delete("p")
    assert a.claims.unclaimed(["x", "z"]) == ["x"]
    assert a.supply(claiming(p=["x"])) == ["p"]


def test_removed_completed_partition_leaves_its_claims(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.supply(claiming(p=["x"]))
    a.leases.acquire(1)
    a.leases.complete("p")
    assert a.leases.remove(fleet.stored("p"))
    assert a.claims.unclaimed(["x"]) == []


# Names


@pytest.mark.parametrize("name", ["x" * 5000, "é" * 3000, "a\0b", "x" * MAX_KEY_BYTES, "x" * (MAX_KEY_BYTES + 1)])
def test_any_name_can_be_claimed(fleet: Fleet, name: str) -> None:
    a = fleet.owner("a")
    assert a.supply(lambda _: [Page({"p": {}}, claims={"p": [name]})]) == ["p"]
    assert a.claims.unclaimed([name, name + "x"]) == [name + "x"]
    assert a.claims.release([name]) == 1


def test_long_names_with_a_common_beginning_differ(fleet: Fleet) -> None:
    long = "x" * 2000
    shortened = claim_key(long + "1")
    assert len({claim_key(long + "1"), claim_key(long + "2"), claim_key(shortened)}) == 3


@pytest.mark.parametrize("name", ["", "\ud800"])
def test_unstorable_name_is_refused(fleet: Fleet, name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"claimed name '.*' is (empty|not valid Unicode)"):
        fleet.owner("a").supply(lambda _: [Page({"p": {}}, claims={"p": [name]})])


# Whoever comes in between


def test_overtaken_supplier_creates_nothing_for_claimed_names(
    fleet: Fleet,
) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")

    def lost_race() -> None:
        fleet.lease_passes()
        assert b.supply(claiming(q=["x"])) == ["q"]

    def supplier(state: Mapping[str, Any]) -> Iterator[Page]:
        assert a.claims.unclaimed(["x"]) == ["x"]
        fleet.store.fault = Fault(before=lost_race)  # at the very last moment
        yield Page({"p": {}}, claims={"p": ["x"]})

    assert a.supply(supplier) == []
    assert a.view.get("p") is None
    assert a.claims.partition_of("x") == "q"


def test_overtaken_supplier_creates_nothing_for_unclaimed_names(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")

    def lost_race() -> None:
        fleet.lease_passes()
        b.supply(claiming())

    def supplier(state: Mapping[str, Any]) -> Iterator[Page]:
        fleet.store.fault = Fault(before=lost_race)
        yield Page({"p": {}}, claims={"p": ["x"]})

    assert a.supply(supplier) == []
    assert a.view.get("p") is None and a.claims.unclaimed(["x"]) == ["x"]


def test_supplier_creates_partitions_after_its_own_renewal(fleet: Fleet) -> None:
    a = fleet.owner("a")

    def renewed() -> None:  # by a write of which it never heard
        item = fleet.global_state()
        fleet.store.store.transact(update=[item.renewed(fleet.clock.now() + seconds(2 * TIMEOUT))])

    def supplier(state: Mapping[str, Any]) -> Iterator[Page]:
        fleet.store.fault = Fault(before=renewed)
        yield Page({"p": {}}, claims={"p": ["x"]})

    assert a.supply(supplier) == ["p"]


def test_supplier_finds_its_partitions_after_a_lost_response(fleet: Fleet) -> None:
    a = fleet.owner("a")

    def supplier(state: Mapping[str, Any]) -> Iterator[Page]:
        new = a.claims.unclaimed(["x", "y"])
        fleet.store.fault = NOT_ANSWERED
        yield Page({"p": {}}, claims={"p": new})

    with pytest.raises(StoreUnavailableError):
        a.supply(supplier)
    assert a.claims.partition_of("x") == a.claims.partition_of("y") == "p"
    assert a.supply(claiming(p=["x", "y"])) == []


# Shared with another source

SHARED = "test|clicks@day|CLAIM"


def sharing(fleet: Fleet, source: str = "clicks@day", of: str = "clicks") -> SourceCoordinator:
    """A coordinator of a source that shares the claims of another one."""
    coordinator = another(fleet, source)
    coordinator.share_claims(of)
    return coordinator


def another(fleet: Fleet, source: str) -> SourceCoordinator:
    coordinator = SourceCoordinator(fleet.store, source, f"worker of {source}", prefix="test", clock=fleet.clock)
    coordinator.initialize()
    return coordinator


def test_name_claimed_by_another_source_is_skipped(fleet: Fleet) -> None:
    live, day = fleet.owner("a"), sharing(fleet)
    live.supply(claiming(p=["x"]))
    assert day.claims.unclaimed(["x", "y"]) == ["y"]
    assert day.supply(claiming(p=["y"])) == ["p"]
    assert live.claims.unclaimed(["x", "y", "z"]) == ["z"]
    assert live.supply(claiming(q=["y"])) == []


def test_shared_claims_are_known_to_every_process(fleet: Fleet) -> None:
    sharing(fleet).supply(claiming(p=["y"]))
    assert another(fleet, "clicks@day").claims.partition_of("y") == "p"
    sharing(fleet)  # again


def test_deleted_partition_releases_its_shared_names(fleet: Fleet) -> None:
    """And not those of the other source, whose partition has the same key."""
    live, day = fleet.owner("a"), sharing(fleet)
    live.supply(claiming(p=["x"]))
    day.supply(claiming(p=["y"]))
    Administration(fleet.store, "test|clicks@day|PARTITION", fleet.clock).delete("p")
    assert live.claims.unclaimed(["x", "y"]) == ["y"]


def test_supplier_retries_after_a_faster_source(fleet: Fleet) -> None:
    live, day = fleet.owner("a"), sharing(fleet)
    lost_race = iter([claiming(p=["x"]), claiming(q=["y"])])

    def supplier(state: Mapping[str, Any]) -> Iterator[Page]:
        new = day.claims.unclaimed(["x", "y", "z"])
        for other in lost_race:
            live.supply(other)
            break
        yield Page({"+".join(new): {}}, claims={"+".join(new): new})

    assert day.supply(supplier) == ["z"]
    assert {name: live.claims.partition_of(name) for name in "xyz"} == {"x": "p", "y": "q", "z": "z"}


def test_claims_are_shared_from_the_beginning_only(fleet: Fleet) -> None:
    day = another(fleet, "clicks@day")
    day.supply(claiming(p=["x"]))
    with pytest.raises(
        ConfigurationError, match=r"'clicks@day' already has its own claims, .* share those of 'clicks'"
    ):
        day.share_claims("clicks")


def test_source_shares_claims_of_one_other_source(fleet: Fleet) -> None:
    day = sharing(fleet)
    with pytest.raises(ConfigurationError, match=r"'clicks@day' already shares the claims of 'clicks', .* of 'orders'"):
        day.share_claims("orders")
    with pytest.raises(
        ConfigurationError, match="'clicks@day' does not have its own claims, but shares those of 'clicks'"
    ):
        another(fleet, "hour").share_claims("clicks@day")
    with pytest.raises(ConfigurationError, match="cannot share its own claims"):
        fleet.owner("a").share_claims("clicks")


# Whatever happens

NAMES = st.sets(st.integers(0, 999).map("n{:03}".format), min_size=1, max_size=4)
CALLS = st.integers(0, 12)
SOURCES = st.sampled_from(["clicks", "clicks@day"])
DAY_PARTITIONS = "test|clicks@day|PARTITION"
PAGE, PACK = 5, 2


class ClaimsMachine(RuleBasedStateMachine):
    """Suppliers of a source, and of one that shares its claims. Each may be killed, get no response, or be
    overtaken, at each of its calls.
    """

    @initialize()
    def begin(self) -> None:
        self.store = InMemoryStore()
        self.clock = ManualClock()
        self.existing: set[str] = set()
        self.coordinator("c", "clicks@day", self.store).share_claims("clicks")

    def coordinator(self, owner: str, source: str, store: Any) -> SourceCoordinator:
        made = SourceCoordinator(store, source, f"{owner}:{id(store)}", prefix="test", clock=self.clock)
        made.initialize()
        return made

    @rule(pause=st.sampled_from([1, TIMEOUT, TIMEOUT + MARGIN]))
    def time_passes(self, pause: int) -> None:
        self.clock.advance(pause)

    @rule(source=SOURCES, appear=NAMES, at=CALLS, answers=st.booleans())
    def a_supplier_is_killed_or_gets_no_answer(self, source: str, appear: set[str], at: int, answers: bool) -> None:
        self.existing |= appear
        before = killed if answers else (lambda: None)
        self.supply("a", source, SteppedStore(self.store, at=at, before=before, answers=answers))

    @rule(source=SOURCES, other=SOURCES, appear=NAMES, at=CALLS, concurrent=NAMES, killed_at=st.none() | CALLS)
    def a_supplier_stands_still_while_another_one_runs(
        self, source: str, other: str, appear: set[str], at: int, concurrent: set[str], killed_at: int | None
    ) -> None:
        def lost_race() -> None:
            if source == other:
                self.clock.advance(TIMEOUT + MARGIN)
            self.existing |= concurrent
            self.supply("b", other, SteppedStore(self.store, at=killed_at, before=killed))

        self.clock.advance(TIMEOUT + MARGIN)
        self.existing |= appear
        self.supply("a", source, SteppedStore(self.store, at=at, before=lost_race))

    def supply(self, name: str, source: str, store: Any) -> None:
        coordinator = self.coordinator(name, source, store)

        def supplier(state: Mapping[str, Any]) -> Iterator[Page]:
            listed = sorted(self.existing)
            for start in range(0, len(listed), PAGE):
                new = coordinator.claims.unclaimed(listed[start : start + PAGE])
                packs = [new[n : n + PACK] for n in range(0, len(new), PACK)]
                claims = {"+".join(pack): pack for pack in packs}
                yield Page({key: {"names": pack} for key, pack in claims.items()}, {"at": start}, claims)

        with suppress(ProcessKilled, StoreUnavailableError):
            coordinator.supply(supplier)

    def created(self) -> list[tuple[dict[str, str], list[str]]]:
        """What a claim of each partition says, and the names of the partition."""
        families = {PARTITIONS: {}, DAY_PARTITIONS: {"source": "clicks@day"}}
        return [
            ({"partition": p.partition_key} | by, p.progress["names"])
            for family, by in families.items()
            for p in all_partitions(self.store, family)
        ]

    @invariant()
    def no_name_is_in_two_partitions(self) -> None:
        names = [name for _, of in self.created() for name in of]
        assert len(names) == len(set(names))

    @invariant()
    def each_name_of_a_partition_is_claimed_by_it_and_nothing_else_is(self) -> None:
        claimed = {c.partition_key: c.progress for c in all_partitions(self.store, CLAIMS)}
        assert claimed == {name: claim for claim, names in self.created() for name in names}
        assert list(all_partitions(self.store, SHARED)) == []

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        self.clock.advance(TIMEOUT + MARGIN)
        self.supply("c", "clicks", self.store)
        assert {name for _, names in self.created() for name in names} == self.existing
        self.no_name_is_in_two_partitions()


ClaimsMachine.TestCase.settings = settings(max_examples=examples(40), stateful_step_count=6)
TestClaims = ClaimsMachine.TestCase


def test_claims_outlive_the_lease_of_their_creator(fleet: Fleet) -> None:
    fleet.owner("a").supply(claiming(p=["x"]))
    fleet.lease_passes()
    assert fleet.owner("b").leases.acquire(5)[0].partition_key == "p"
    assert Claims(fleet.store, CLAIMS, fleet.clock).unclaimed(["x"]) == []
    assert fleet.store.store.get(GLOBAL_FAMILY, GLOBAL_STATE_KEY) is not None
