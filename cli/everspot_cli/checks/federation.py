"""The check of a cluster's peers, by what its scheduler sees of them."""

from collections import defaultdict
from datetime import datetime
from typing import Any

from everspot_core.counting import first_few

from everspot_cli.checks import Check, Verdict
from everspot_cli.peers import USER, describe_sighting, peer_rows
from everspot_cli.session import Session

_SHOWN = 3
_GROUP, _NAME = "cluster", "peers"
_DOWN = "this cluster works on alone, and no jobs go there until it is back; no fix is needed if that was planned"
_FIX = (
    "no jobs go there until then; those that are there stay. Where it cannot be reached: has the scheduler's network a "
    "way out, as the preview asks for? docs/guide/federation.md"
)


def peers_check(session: Session) -> Check:
    """Check that jobs can be exchanged with every peer. A known peer that is down fails the check only while jobs of
    this cluster are there: it may have been taken down on purpose.

    Raises:
        StoreError: if the cluster's own store failed.
    """
    rows, now = peer_rows(session), session.now
    if not rows:
        return Check(_GROUP, _NAME, Verdict.OK, "none: this cluster exchanges no jobs")
    wrong = [row for row in rows if row["problem"]]
    if wrong:
        jobs_by_peer, peer_notes = _away(session), session.store.notes.peers.scan()
        fails = [row for row in wrong if not row["down"] or row["name"] not in peer_notes or jobs_by_peer[row["name"]]]
        verdict, fix = (Verdict.FAIL, _FIX) if fails else (Verdict.WARN, _DOWN)
        return Check(
            _GROUP, _NAME, verdict, "; ".join(_words(row, jobs_by_peer[row["name"]], now) for row in wrong), fix
        )
    unseen = [row["name"] for row in rows if row["seen_by"] == USER]
    if unseen:
        fix = "the scheduler looks every 20 s and reports with its next heartbeat: does it run?"
        return Check(_GROUP, _NAME, Verdict.WARN, f"not looked at by the scheduler yet: {', '.join(unseen)}", fix)
    return Check(
        _GROUP, _NAME, Verdict.OK, ", ".join(f"{row['name']} (seen by {describe_sighting(row, now)})" for row in rows)
    )


def _away(session: Session) -> dict[str, list[str]]:
    """Return the jobs of this cluster that are away, by peer."""
    jobs_by_peer: dict[str, list[str]] = defaultdict(list)
    for job, doc in sorted(session.store.records.scan().items()):
        if doc.value.away is not None:
            jobs_by_peer[doc.value.away.cluster].append(job)
    return jobs_by_peer


def _words(row: dict[str, Any], jobs: list[str], now: datetime) -> str:
    stuck = f"; it has {first_few(jobs, _SHOWN)} of this cluster" if jobs else ""
    return f"{row['name']}: {row['problem']} (seen by {describe_sighting(row, now)}){stuck}"
