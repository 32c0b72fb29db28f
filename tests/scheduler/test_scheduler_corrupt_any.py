"""Any value of any document may be corrupt, in a cluster that launches and in two that exchange jobs: the ticks
continue, and a new job gets an instance."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cache
from typing import Any

import pytest
from elastic_helpers import ON_DEMAND, SPOT, ElasticCluster
from everspot_core.capacity.launching import LaunchTrouble
from everspot_core.costs.team_budgets import Budgets
from everspot_core.jobs.records import Market
from everspot_store import BadDocument, ManualClock
from federation_helpers import Pair, memory_store
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_helpers import Cluster

pytestmark = pytest.mark.nightly
SECOND = timedelta(seconds=1)
BEYOND = "9999-12-31T23:59:59-12:00"  # a moment that Python has in its own zone, and not in UTC
NONSENSE: Sequence[Any] = (
    float("inf"), float("nan"), -1, 10**30, 0, 1e-300, True, None, "x", "two", "host", [], {}, BEYOND,
    "0001-01-01T00:00:00Z", "2126-01-01T00:00:00Z",
)  # fmt: skip
NO_DOCUMENT = (b"", b"{", b"[]", b"null", b"\xff")
Path = tuple[str | int, ...]


def launching() -> list[Cluster]:
    """A cluster that has launched, lost an instance, and is refused now."""
    clock = ManualClock()
    cluster = ElasticCluster(memory_store("here", clock), clock)
    budgets = Budgets.model_validate({"teams": {"ants": {"month": {"dollars": 1000}}}})
    cluster.store.control.put("budgets.json", budgets.to_json())
    cluster.submit("done", tags={"Team": "ants"})
    cluster.run(14)
    cluster.length = 10**6
    for name in ("one", "two"):
        cluster.submit(name, budget={"dollars": 50}, expected_duration="1h", deadline="3h")
    cluster.run(6)
    cluster.cloud.refuses = {SPOT: LaunchTrouble.CAPACITY, ON_DEMAND: LaunchTrouble.QUOTA}
    cluster.submit("waits", expected_duration="1h")
    cluster.run(4)
    owner = cluster.store.records.get("two").value.owner
    cluster.cloud.end_one(owner, interrupted=True)
    cluster.run(5)
    cluster.later(minutes=2)
    cluster.run(3)
    cluster.cloud.refuses = {}
    return [cluster]


def exchanging() -> list[Cluster]:
    """Two clusters: one job of the first has been with the second, one is there, and one is on its way."""
    pair = Pair(None, ManualClock(), length=6)
    for name in ("i-1", "i-2"):
        pair.host.agent(name)
    pair.home.agent("h-1")
    for job in ("back", "two"):
        pair.home.wishes[job] = "host"
        pair.home.submit(job, clouds=["aws"], budget={"dollars": 5})
        pair.run(25 if job == "back" else 14)
        for member in pair.members:
            member.length = 10**6
    pair.home.wishes["offered"] = "host"
    pair.home.submit("offered", clouds=["aws"])
    pair.host.submit("own")
    pair.run(4)
    return list(pair.members)


WORLDS: dict[str, Callable[[], list[Cluster]]] = {"launching": launching, "exchanging": exchanging}


def inside(document: Any, at: Path = ()) -> Iterator[Path]:
    """Where the values of a document are."""
    entries = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for name, value in entries:
        yield (*at, name)
        yield from inside(value, (*at, name))


@cache
def places(world: str) -> list[tuple[int, str, Path]]:
    """Cluster, key and place of all that can be wrong; an empty place: the whole document. The manifest is not among
    it: who deploys writes it, and a scheduler without one does nothing."""
    locations: list[tuple[int, str, Path]] = []
    for number, cluster in enumerate(WORLDS[world]()):
        for key in sorted(entry.key for entry in cluster.store.control.list("") if entry.key != "cluster.json"):
            document = json.loads(cluster.store.control.get(key).value)
            locations += [(number, key, place) for place in ((), *inside(document))]
    return locations


def spoilt(cluster: Cluster, key: str, place: Path, value: Any) -> None:
    entry = cluster.store.control.get(key)
    if entry is None or not place:
        cluster.store.control.put(key, value)
        return
    document = part = json.loads(entry.value)
    *way, last = place
    for step in way:
        part = part[step]
    part[last] = value
    cluster.store.control.put(key, json.dumps(document).encode())


def goes_on(clusters: Sequence[Cluster]) -> None:
    """Check that newly started schedulers tick without errors and assign a new job to an instance."""
    clusters[0].clock.advance(timedelta(minutes=6))
    for cluster in clusters:
        cluster.schedulers = [cluster.scheduler("s2")]
        cluster.submit("new")
        if not isinstance(cluster, ElasticCluster):
            cluster.agent("i-new", Market.ON_DEMAND)
    for _ in range(40):
        for cluster in clusters:
            cluster.schedulers[0].tick()
            if isinstance(cluster, ElasticCluster):
                cluster.boot()
            for agent in list(cluster.agents.values()):
                with suppress(BadDocument):  # of the agent whose document it is
                    agent.turn()
        clusters[0].clock.advance(SECOND)
    for cluster in clusters:
        assert cluster.store.schedulers.get("s2") is not None, "a tick reaches its end"
        assert cluster.starts["new"]


@pytest.mark.parametrize("world", WORLDS)
def test_no_value_of_any_document_stops_the_ticks_or_a_new_job(world: str) -> None:
    @settings(max_examples=6 * settings.default.max_examples)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        number, key, place = data.draw(st.sampled_from(places(world)))
        value = data.draw(st.sampled_from(NONSENSE if place else NO_DOCUMENT))
        clusters = WORLDS[world]()
        spoilt(clusters[number], key, place, value)
        goes_on(clusters)

    check()
