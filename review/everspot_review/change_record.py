"""The record of an applied change: a document in the control bucket of the environment's cluster.

`everspot changes` lists these records, and the web UI draws the cost's history from them. A record that cannot be
written is reported in a sentence and is no failure: the update is done.
"""

from collections import Counter
from datetime import datetime
from urllib.parse import urlsplit

from everspot_core.cluster.applied_change import AppliedChange, PullRequest
from everspot_core.cluster.deployment import control_url
from everspot_store import Store, StoreError

from everspot_review.apply import ApplyOutcome, ApplyResult
from everspot_review.engine import Engine, EngineError
from everspot_review.forge import Pull
from everspot_review.values import masked

TITLE = 200
"""Characters that are kept of a pull request's title."""


def record(engine: Engine, outcome: ApplyOutcome, pull: Pull | None) -> str:
    """Record an applied change, also of a failed update. Return the reason in a sentence if nothing is recorded,
    otherwise None."""
    if outcome.status not in (ApplyResult.UPDATED, ApplyResult.DEVIATED, ApplyResult.FAILED):
        return ""
    try:
        url = control_url(engine.state(outcome.environment))
        if not url:
            return f"{outcome.environment}: it has no cluster, so that no store keeps what this change cost"
        store = Store.open(url, url)
        store.changes.add(applied(outcome, pull, store.clock.now()))
    except (EngineError, StoreError, ValueError) as error:
        reason = masked(" ".join(str(error).split()))[:300]
        return f"{outcome.environment}: what this change cost could not be kept in the cluster's store: {reason}"
    return ""


def applied(outcome: ApplyOutcome, pull: Pull | None, at: datetime) -> AppliedChange:
    """Return the document on a change. `at`: when its update had ended."""
    report = outcome.report
    return AppliedChange(
        at=at, environment=report.environment, revision=report.head, digest=report.digest,
        pull_request=_pull_request(pull) if pull is not None else None, estimate=report.estimate,
        steps=dict(sorted(Counter(step.deed.value for step in report.steps).items())),
        outcome="failed" if outcome.status is ApplyResult.FAILED else "updated",
    )  # fmt: skip


def _pull_request(pull: Pull) -> PullRequest:
    """Return a pull request as people may be shown it: its title is anybody's text, its page an address of the web."""
    title = " ".join("".join(letter if letter.isprintable() else " " for letter in pull.title).split())
    url = pull.url if urlsplit(pull.url).scheme in ("http", "https") else ""
    return PullRequest(number=pull.number, title=title[:TITLE], url=url, author=pull.author)
