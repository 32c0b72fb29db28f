"""What every component does the same way, on whatever cloud: its token, its names, the refusal of bad inputs."""

import re

import pulumi
from everspot_core.problems import BadInputs, Problems, shown

PACKAGE = "everspot"
"""Name of the component package: the first part of every type token."""

# What is made of it has to fit: names of rules and roles (64) and of buckets (63), with suffix and random digits.
CLUSTER_AT_MOST = 32
"""Characters of a cluster's name."""

RANDOM = 8
"""Characters that Pulumi puts behind a name."""

_CLUSTER_NAME = re.compile(rf"^[a-z][a-z0-9-]{{1,{CLUSTER_AT_MOST - 2}}}[a-z0-9]$")


def token(kind: str) -> str:
    """The type token of a component."""
    return f"{PACKAGE}:index:{kind}"


def check_cluster_name(problems: Problems, cluster: str) -> None:
    """Add what is wrong with a cluster's name."""
    problems.need(
        bool(_CLUSTER_NAME.match(cluster)),
        "cluster",
        f"{shown(cluster)} has to be 3 to {CLUSTER_AT_MOST} lower-case letters, digits and dashes, "
        "beginning with a letter",
    )


def check_name(problems: Problems, name: str, suffix: str, most: int, what: str) -> None:
    """Add that a component's name makes a resource's name too long. `suffix`: the longest that is put behind it;
    `most`: characters that the cloud allows; `what`: the resource. Pulumi adds a dash and seven random digits."""
    room = most - len(suffix) - RANDOM
    problems.need(
        len(name) <= room,
        "name",
        f"{shown(name)} has {len(name)} characters; the name of its {what} leaves room for {room}",
    )


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
