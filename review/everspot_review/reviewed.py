"""The reviewed digests: those in our comment on a pull request, with the revision that it was about.

They are believed only in our own comment, and only if the comment is about the last revision of the pull request: later
pushes were never previewed.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from everspot_review.comment_state import CommentState, read_states
from everspot_review.digest import NOTHING
from everspot_review.forge import Forge, Pull
from everspot_review.markdown import MARKER, digests
from everspot_review.publish import Voice

_HEAD = re.compile(r"<!-- everspot-head ([0-9a-f]{7,64}) -->")
_PLACE = 2
"""Lines of a comment before the one with its revision: the marker, and the digests."""


@dataclass(frozen=True)
class Reviewed:
    """The review of one pull request.

    Attributes:
        pull: The pull request.
        digests: The digests that were reviewed, by environment.
        reason: A sentence on why there is no digest.
        states: The entries of the comment after the merge, by environment.
    """

    pull: Pull
    digests: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    states: Mapping[str, CommentState] = field(default_factory=dict)


@dataclass(frozen=True)
class Reviews:
    """The reviews of a push's commits.

    Attributes:
        reviews: One for each pull request, the newest first.
        reason: A sentence on why there are no reviews.
    """

    reviews: tuple[Reviewed, ...] = ()
    reason: str = ""

    def for_environment(self, environment: str) -> tuple[Reviewed, ...]:
        """Return the reviews that showed a change of an environment, the newest first; without any, the reviews that
        showed no change of it, otherwise the newest of all."""
        showing = tuple(review for review in self.reviews if environment in review.digests)
        return (
            tuple(review for review in showing if review.digests[environment] != NOTHING) or showing or self.reviews[:1]
        )

    def expected_digest(self, environment: str) -> "ReviewedDigest":
        """Return the steps that an update of an environment must have: those of its newest review."""
        reviews = self.for_environment(environment)
        digest = reviews[0].digests.get(environment, "") if reviews else ""
        if not digest:
            return ReviewedDigest(
                "", self.reason or reviews[0].reason or f"the comment on {_pull_numbers(reviews)} has no digest of it"
            )
        if len(reviews) == 1:
            return ReviewedDigest(digest)
        return ReviewedDigest(
            digest, f"{_pull_numbers(reviews)}, merged in one push, each change it, and what the last of them showed "
            f"is not what all of them come to. Open a pull request that touches Pulumi.{environment}.yaml: its preview "
            "shows that",
        )  # fmt: skip

    def state_at(self, environment: str, revision: str) -> CommentState | None:
        """Return the recorded state of an environment at the revision that is applied."""
        states = (review.states.get(environment) for review in self.for_environment(environment))
        return next((state for state in states if state is not None and state.revision == revision), None)


@dataclass(frozen=True)
class ReviewedDigest:
    """The steps that an update must have.

    Attributes:
        digest: of the reviewed preview, empty if there was none.
        reason: a sentence on why the present steps may differ, empty if unknown.
    """

    digest: str
    reason: str = ""


def _pull_numbers(reviews: Sequence[Reviewed]) -> str:
    numbers = [str(review.pull.number) for review in reviews]
    return f"pull request {numbers[0]}" if len(numbers) == 1 else f"pull requests {', '.join(sorted(numbers, key=int))}"


def with_head(body: str, head: str) -> str:
    """Return a comment with the revision that it is about, in its third line."""
    lines = body.splitlines()
    return "\n".join([*lines[:_PLACE], f"<!-- everspot-head {head} -->", *lines[_PLACE:]]) + "\n"


def comment_head(body: str) -> str:
    """Return the revision that a comment is about; empty if its third line has none."""
    match = _HEAD.fullmatch("\n".join(body.lstrip().splitlines()[_PLACE : _PLACE + 1]).strip())
    return match[1] if match else ""


def list_reviews(forge: Forge, commits: Sequence[str], branch: str = "", author: str | None = None) -> Reviews:
    """Return the reviews of commits (newest first) by the pull requests that they came from. `branch`: the branch of
    the commits: pull requests into others do not count; empty if unknown.

    Raises:
        ForgeError: if the forge cannot be asked.
    """
    voice, by_number = Voice.for_owner(forge, MARKER, author), dict[int, Reviewed]()
    for commit in commits:
        pulls = [pull for pull in forge.list_pulls(commit) if pull.merged and branch in ("", pull.base)]
        for pull in sorted(pulls, key=lambda pull: -pull.number):
            if pull.number not in by_number:
                by_number[pull.number] = _reviewed(forge, voice, pull)
    if by_number:
        return Reviews(tuple(by_number.values()))
    return Reviews(reason=f"{commits[0][:12]} came from no merged pull request" if commits else "there is no commit")


def _reviewed(forge: Forge, voice: Voice, pull: Pull) -> Reviewed:
    own_comment = voice.own_comment(forge.comments(pull.number))
    if own_comment is None:
        return Reviewed(pull, reason=f"pull request {pull.number} has no comment of ours")
    head, states = comment_head(own_comment.body), read_states(own_comment.body)
    if head != pull.head:
        about = f"the comment on pull request {pull.number} is about {head[:12] or 'nothing'}"
        return Reviewed(pull, reason=f"{about}, and its last revision is {pull.head[:12]}", states=states)
    return Reviewed(pull, digests(own_comment.body), states=states)
