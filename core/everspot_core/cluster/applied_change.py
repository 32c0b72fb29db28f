"""A change of an environment that was applied after its review, as a cluster's store records it."""

from typing import Literal

from pydantic import Field

from everspot_core.documents import Document, Stored, Utc
from everspot_core.estimate.model import Estimate


class PullRequest(Stored):
    """The pull request that a change came from. `url`, `author`: empty where the forge did not say; `author`: a
    login."""

    number: int
    title: str
    url: str = ""
    author: str = ""


class AppliedChange(Document):
    """A change of an environment that was applied, or that a failed update may have applied in part. It is written
    once.

    Attributes:
        at: when the update had ended.
        revision: the commit that was applied.
        digest: SHA-256 of the planned steps, equal to the reviewed one.
        pull_request: None if the digest was given by hand.
        estimate: a month's cost before and after the change; None where there is no estimate.
        steps: the number of resources by the planned operation, such as `replace`.
        outcome: how the update ended.
    """

    at: Utc
    environment: str
    revision: str
    digest: str
    pull_request: PullRequest | None = None
    estimate: Estimate | None = None
    steps: dict[str, int] = Field(default_factory=dict)
    outcome: Literal["updated", "failed"] = "updated"

    @property
    def whole(self) -> bool:
        """Whether all of it was done."""
        return self.outcome == "updated"
