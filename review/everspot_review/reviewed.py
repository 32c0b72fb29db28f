"""What was reviewed: the digests that our comment on a pull request has, of the revision that it was about.

They are believed only in a comment of ours, and only if that speaks of the last revision of the pull request: what was
pushed after it, nobody has previewed.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from everspot_review.digest import NOTHING
from everspot_review.forge import Forge, Pull
from everspot_review.kept import Kept, kept_of
from everspot_review.markdown import MARKER, digests
from everspot_review.publish import Voice

_HEAD = re.compile(r"<!-- everspot-head ([0-9a-f]{7,64}) -->")
_PLACE = 2
"""Lines of a comment before the one with its revision: the marker, and the digests."""


@dataclass(frozen=True)
class Reviewed:
    """What was reviewed in a pull request. `digests`: by environment; `kept`: what our comment keeps of environments
    after the merge; `why`: why there is no digest, a sentence."""

    pull: Pull
    digests: Mapping[str, str] = field(default_factory=dict)
    why: str = ""
    kept: Mapping[str, Kept] = field(default_factory=dict)


@dataclass(frozen=True)
class Reviews:
    """What was reviewed of the commits of a push. `found`: by pull request, the newest first; `why`: why there is none,
    a sentence."""

    found: tuple[Reviewed, ...] = ()
    why: str = ""

    def of(self, environment: str) -> tuple[Reviewed, ...]:
        """The reviews that showed a change of an environment, the newest first; if there are none, those that showed
        that it stays as it is, or else the newest of all."""
        told = tuple(one for one in self.found if environment in one.digests)
        return tuple(one for one in told if one.digests[environment] != NOTHING) or told or self.found[:1]

    def wanted(self, environment: str) -> "ReviewedDigest":
        """What an update of an environment has to do: what its newest review showed."""
        mine = self.of(environment)
        digest = mine[0].digests.get(environment, "") if mine else ""
        if not digest:
            return ReviewedDigest("", self.why or mine[0].why or f"the comment on {_named(mine)} has no digest of it")
        if len(mine) == 1:
            return ReviewedDigest(digest)
        return ReviewedDigest(
            digest, f"{_named(mine)}, merged in one push, each change it, and what the last of them showed is not what "
            f"all of them come to. Open a pull request that touches Pulumi.{environment}.yaml: its preview shows that",
        )  # fmt: skip

    def kept(self, environment: str, revision: str) -> Kept | None:
        """What is kept of an environment at the revision that is applied."""
        mine = (one.kept.get(environment) for one in self.of(environment))
        return next((kept for kept in mine if kept is not None and kept.revision == revision), None)


@dataclass(frozen=True)
class ReviewedDigest:
    """What an update has to do. `digest`: of the preview that was reviewed, empty if there was none; `why`: why what
    would be done now may be something else, a sentence, empty if that is not known."""

    digest: str
    why: str = ""


def _named(reviews: Sequence[Reviewed]) -> str:
    numbers = [str(one.pull.number) for one in reviews]
    return f"pull request {numbers[0]}" if len(numbers) == 1 else f"pull requests {', '.join(sorted(numbers, key=int))}"


def with_head(body: str, head: str) -> str:
    """A comment with the revision that it is about, in its third line."""
    lines = body.splitlines()
    return "\n".join([*lines[:_PLACE], f"<!-- everspot-head {head} -->", *lines[_PLACE:]]) + "\n"


def head_of(body: str) -> str:
    """The revision that a comment is about; empty if its third line tells none."""
    found = _HEAD.fullmatch("\n".join(body.lstrip().splitlines()[_PLACE : _PLACE + 1]).strip())
    return found[1] if found else ""


def reviewed_of(forge: Forge, commits: Sequence[str], branch: str = "", author: str | None = None) -> Reviews:
    """What was reviewed of commits, the newest of which comes first, by the pull requests that they came from.
    `branch`: the one that they are on: pull requests into others do not count; empty if it is not known.

    Raises:
        ForgeError: if the forge cannot be asked.
    """
    voice, found = Voice.of(forge, MARKER, author), dict[int, Reviewed]()
    for commit in commits:
        pulls = [pull for pull in forge.pulls_of(commit) if pull.merged and branch in ("", pull.base)]
        for pull in sorted(pulls, key=lambda pull: -pull.number):
            if pull.number not in found:
                found[pull.number] = _reviewed(forge, voice, pull)
    if found:
        return Reviews(tuple(found.values()))
    return Reviews(why=f"{commits[0][:12]} came from no merged pull request" if commits else "there is no commit")


def _reviewed(forge: Forge, voice: Voice, pull: Pull) -> Reviewed:
    mine = voice.mine(forge.comments(pull.number))
    if mine is None:
        return Reviewed(pull, why=f"pull request {pull.number} has no comment of ours")
    head, kept = head_of(mine.body), kept_of(mine.body)
    if head != pull.head:
        about = f"the comment on pull request {pull.number} is about {head[:12] or 'nothing'}"
        return Reviewed(pull, why=f"{about}, and its last revision is {pull.head[:12]}", kept=kept)
    return Reviewed(pull, digests(mine.body), kept=kept)
