"""The check of a cluster's peers, by what its scheduler sees of them."""

from everspot_cli.checks import Check, Verdict
from everspot_cli.peers import USER, peer_rows, seen
from everspot_cli.session import Session

_GROUP, _NAME = "cluster", "peers"
_FIX = (
    "no jobs go there until then; those that are there stay. Where it cannot be reached: has the scheduler's network a "
    "way out, as the preview asks for? docs/federation.md"
)


def peers_check(session: Session) -> Check:
    """Whether jobs can be exchanged with every peer.

    Raises:
        StoreError: if the cluster's own store failed.
    """
    rows, now = peer_rows(session), session.now
    if not rows:
        return Check(_GROUP, _NAME, Verdict.OK, "none: this cluster exchanges no jobs")
    wrong = [f"{row['name']}: {row['problem']} (seen by {seen(row, now)})" for row in rows if row["problem"]]
    if wrong:
        return Check(_GROUP, _NAME, Verdict.FAIL, "; ".join(wrong), _FIX)
    unseen = [row["name"] for row in rows if row["seen_by"] == USER]
    if unseen:
        fix = "the scheduler looks every 20 s and tells with its next heartbeat: does it run?"
        return Check(_GROUP, _NAME, Verdict.WARN, f"not looked at by the scheduler yet: {', '.join(unseen)}", fix)
    return Check(_GROUP, _NAME, Verdict.OK, ", ".join(f"{row['name']} (seen by {seen(row, now)})" for row in rows))
