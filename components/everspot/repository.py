"""The repository whose pull requests change environments, and the claims of its jobs' identity tokens."""

import re
from enum import StrEnum
from typing import NotRequired, TypedDict

from everspot_clouds.base.project_setup import REPOSITORY, REPOSITORY_ID
from everspot_core.validation.problems import Problems, shown

ISSUER = "https://token.actions.githubusercontent.com"
"""The issuer of the identity tokens of GitHub's jobs (GitHub documentation, "OpenID Connect reference")."""

_BRANCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,99}")
_ENVIRONMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class ReviewPart(StrEnum):
    """The part of a workflow's job, which decides its identity in the cloud."""

    PREVIEW = "preview"
    DRIFT = "drift"
    DEPLOY = "deploy"


class RepositoryArgs(TypedDict):
    """A repository on GitHub, and which of its jobs may do what. `gh api repos/OWNER/NAME --jq '.id, .owner.id'` prints
    both ids."""

    name: str
    """OWNER/NAME, in the case in which GitHub writes it."""
    id: NotRequired[str]
    """The repository's id, a number in quotes. It stays when the repository is renamed, and no other one ever gets it.
    Repositories that were made or renamed after June 2026 are trusted only with both ids. Default: it is not looked
    at."""
    owner_id: NotRequired[str]
    """The id of its owner, a number in quotes. It goes with `id`."""
    branch: NotRequired[str]
    """The branch that changes are merged into, whose scheduled jobs look for drift. Default: main."""
    environment: NotRequired[str]
    """The environment on GitHub whose jobs may write: its required reviewers have the last word. Default:
    production."""


def check_repository(problems: Problems, repository: RepositoryArgs) -> None:
    """Add a problem for each mistake in a repository."""
    name = repository["name"]
    problems.need(bool(REPOSITORY.fullmatch(name)), "name", f"{shown(name)} has to be OWNER/NAME, without wildcards")
    for key, path in (("id", "id"), ("owner_id", "ownerId")):
        value = repository.get(key)
        if value is not None:
            problems.need(
                bool(REPOSITORY_ID.fullmatch(str(value))), path, f"{shown(value)} has to be a number, in quotes"
            )
    problems.need(
        ("id" in repository) == ("owner_id" in repository), "", "id and ownerId go together: a token has both or none"
    )
    branch, environment = repository.get("branch", "main"), repository.get("environment", "production")
    problems.need(bool(_BRANCH.fullmatch(branch)), "branch", f"{shown(branch)} is no name of a branch")
    plain = bool(_ENVIRONMENT.fullmatch(environment))
    problems.need(plain, "environment", f"{shown(environment)}: letters, digits, dots, dashes and underscores")


def deployed_by(repository: RepositoryArgs) -> str:
    """Return how the subjects of jobs end that may write."""
    return f"environment:{repository.get('environment', 'production')}"


def merged_ref(repository: RepositoryArgs) -> str:
    """Return the claim `ref` of jobs of the branch that changes are merged into. An environment that takes jobs of
    every branch, as a private repository's of GitHub Free does, would give all who can push what its jobs may do."""
    return f"refs/heads/{repository.get('branch', 'main')}"


def subjects(repository: RepositoryArgs, part: ReviewPart) -> list[str]:
    """Return what the claim `sub` of a part's jobs may be. With ids there are two forms: GitHub puts them into the
    subjects of repositories that were made, renamed or moved after 18 June 2026, or that enabled it.

    A job with an environment has that in its subject, and not the branch (GitHub documentation, "OpenID Connect
    reference", "Example subject claims").
    """
    owner, _, name = repository["name"].partition("/")
    ends = {
        ReviewPart.PREVIEW: "pull_request",
        ReviewPart.DRIFT: f"ref:{merged_ref(repository)}",
        ReviewPart.DEPLOY: deployed_by(repository),
    }
    begins = [f"{owner}/{name}"]
    if "id" in repository and "owner_id" in repository:
        begins.append(f"{owner}@{repository['owner_id']}/{name}@{repository['id']}")
    return [f"repo:{begin}:{ends[part]}" for begin in begins]
