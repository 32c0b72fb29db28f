"""The phases of a tick: their order is the documented one, and an error in a part that only informs people stops
nothing."""

import re
from pathlib import Path

import pytest
from everspot_scheduler.phases import Tick, TickPart, TickPhase
from everspot_store import StoreUnavailable
from scheduler_helpers import Cluster

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/internals/scheduler.md"


def documented_parts() -> list[tuple[str, str]]:
    """The first two columns of the table of phases."""
    table = DOCUMENT.read_text().partition("| phase | part |")[2].partition("\n\n")[0]
    return re.findall(r"^\| (\w+) \| ([^|]+) \|", table, re.MULTILINE)


def test_the_parts_of_a_tick_come_in_the_documented_order(cluster: Cluster) -> None:
    phases = cluster.schedulers[0].phases
    assert [phase.name for phase in phases] == ["observe", "decide", "act", "record", "publish"]
    assert documented_parts() == [(phase.name, part.name) for phase in phases for part in phase.parts]


def test_an_error_in_a_part_for_people_does_not_stop_the_next_one(caplog: pytest.LogCaptureFixture) -> None:
    steps: list[str] = []

    def fail(tick: Tick) -> None:
        raise ValueError("a figure that makes no sense")

    phase = TickPhase(
        "record",
        [
            TickPart("figures", fail, best_effort=True),
            TickPart("heartbeat", lambda tick: steps.append("heartbeat")),
        ],
    )
    phase.run(Tick())
    assert steps == ["heartbeat"]
    assert "figures failed" in caplog.text


@pytest.mark.parametrize(("error", "best_effort"), [(ValueError("x"), False), (StoreUnavailable("x"), True)])
def test_every_other_error_ends_the_phase(error: Exception, best_effort: bool) -> None:
    steps: list[str] = []

    def fail(tick: Tick) -> None:
        raise error

    later = TickPart("later", lambda tick: steps.append("later"))
    phase = TickPhase("record", [TickPart("fails", fail, best_effort=best_effort), later])
    with pytest.raises(type(error)):
        phase.run(Tick())
    assert steps == []
