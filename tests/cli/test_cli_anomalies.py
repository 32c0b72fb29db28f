"""`everspot cost anomalies`: open anomalies, ended ones, and unreadable documents."""

from datetime import timedelta

from everspot_core.governance.anomalies import Anomalies, AnomalyKind, Finding
from report_helpers import T0

HOUR = timedelta(hours=1)
IDLE = Finding(AnomalyKind.IDLE_FLEET, "fleet", "2 of 3 instances have had no work for 2h or longer", {"idle": 2.0})
LONG = Finding(AnomalyKind.JOB_OVER_ESTIMATE, "j-1", "job j-1 has held instances for 9h")


def test_a_cluster_without_any_says_so(world):
    answer = world.run("anomalies")
    assert (answer.code, answer.out) == (0, "The scheduler has found no anomaly.\n")
    assert world.run("--json", "anomalies").json == {
        "cluster": "test", "anomalies": [], "updated_at": None, "note": None,
    }  # fmt: skip


def test_open_anomalies_come_first_and_past_ones_with_all(world):
    note = Anomalies(scheduler_id="s", updated_at=T0).followed([IDLE], T0).followed([LONG], T0 + HOUR)
    world.store.notes.anomalies.write(note)
    (row,) = world.run("--json", "anomalies").json["anomalies"]
    assert (row["kind"], row["subject"], row["since"], row["over_at"]) == (
        "job-over-estimate", "j-1", "2026-03-01T13:00:00Z", None,
    )  # fmt: skip
    rows = world.run("anomalies", "--all", "--json").json["anomalies"]
    assert [(r["subject"], r["over_at"]) for r in rows] == [("j-1", None), ("fleet", "2026-03-01T13:00:00Z")]
    lines = world.run("anomalies", "--all").out.splitlines()
    assert lines[0].startswith("job-over-estimate, since ")
    assert lines[1:] == [
        "  job j-1 has held instances for 9h",
        "idle-fleet, 2026-03-01 12:00 to 2026-03-01 13:00 UTC",
        "  2 of 3 instances have had no work for 2h or longer",
    ]


def test_a_note_that_cannot_be_read_is_told_and_is_no_failure(world):
    world.store.control.put("ledger/anomalies.json", b"{")
    answer = world.run("anomalies")
    assert answer.code == 0
    assert "the scheduler will write it again" in " ".join(answer.err.split())
