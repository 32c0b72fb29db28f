"""What every component does the same way: checking its inputs, tagging, naming its outputs."""

import re
from collections.abc import Mapping

import pulumi
from everspot_core.problems import BadInputs, Problems

PACKAGE = "everspot"
"""Name of the component package: the first part of every type token."""

MANDATORY_TAGS = ("Project", "Team", "Environment")
"""Tags that everything carries, so that every dollar of a bill has an owner."""

CLUSTER_TAG = "everspot:cluster"
"""Tag by which the scheduler and the CLI find what belongs to a cluster."""

ROLE_TAG = "everspot:role"
"""Tag of instances: agent or scheduler."""

# What is made of it has to fit: names of rules and roles (64) and of buckets (63), with suffix and random digits.
_CLUSTER_NAME = re.compile(r"^[a-z][a-z0-9-]{1,30}[a-z0-9]$")


def token(kind: str) -> str:
    """The type token of a component."""
    return f"{PACKAGE}:index:{kind}"


def check_common(problems: Problems, cluster: str, tags: Mapping[str, str]) -> None:
    """Add what is wrong with a cluster's name and with its tags."""
    problems.need(
        bool(_CLUSTER_NAME.match(cluster)),
        "cluster",
        f"{cluster!r} has to be 3 to 32 lower-case letters, digits and dashes, beginning with a letter",
    )
    check_tags(problems, tags)


def check_tags(problems: Problems, tags: Mapping[str, str]) -> None:
    """Add what is wrong with tags: mandatory ones that are missing or empty, and names that Everspot sets itself."""
    missing = [name for name in MANDATORY_TAGS if not tags.get(name)]
    problems.need(not missing, "tags", f"mandatory and missing: {', '.join(missing)}")
    for name in tags:
        reserved = name.startswith(("aws:", f"{PACKAGE}:"))
        problems.need(not reserved, f"tags.{name}", "tags under aws: and everspot: cannot be set")


class BadComponentInputs(pulumi.InputPropertiesError, pulumi.RunError):
    """Inputs that a component refuses. Served, it carries each of them to the caller's language; in a program of this
    language it ends the program with its message, and without a traceback."""


def raise_bad(problems: Problems, what: str) -> None:
    """Refuse a component's inputs, all at once.

    Raises:
        BadComponentInputs: if any problem was found; it carries each with the input's path.
    """
    try:
        problems.raise_any(what)
    except BadInputs as bad:
        details: list[pulumi.InputPropertyErrorDetails] = [
            {"property_path": problem.path, "reason": problem.reason} for problem in bad.shown
        ]
        raise BadComponentInputs(str(bad), details) from None


def cluster_tags(cluster: str, tags: Mapping[str, str], **more: str) -> dict[str, str]:
    """The tags of one resource: the user's, the cluster's, and the given ones."""
    return {**tags, CLUSTER_TAG: cluster, **more}
