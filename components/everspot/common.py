"""What every component does the same way: checking its inputs, tagging, naming its outputs."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
from everspot_clouds.aws.rules import CLUSTER_TAG
from everspot_clouds.aws.tags import arn_problem, tag_problems
from everspot_core.problems import BadInputs, Problems, camel, shown

PACKAGE = "everspot"
"""Name of the component package: the first part of every type token."""

MANDATORY_TAGS = ("Project", "Team", "Environment")
"""Tags that everything carries, so that every dollar of a bill has an owner."""

# What is made of it has to fit: names of rules and roles (64) and of buckets (63), with suffix and random digits.
CLUSTER_AT_MOST = 32
"""Characters of a cluster's name."""

RANDOM = 8
"""Characters that Pulumi puts behind a name."""

OWN_TAGS = 3
"""Tags of instances that Everspot sets itself: cluster, role and Name. So 47 are the user's."""

_CLUSTER_NAME = re.compile(rf"^[a-z][a-z0-9-]{{1,{CLUSTER_AT_MOST - 2}}}[a-z0-9]$")


def token(kind: str) -> str:
    """The type token of a component."""
    return f"{PACKAGE}:index:{kind}"


def check_common(problems: Problems, cluster: str, tags: Mapping[str, str]) -> None:
    """Add what is wrong with a cluster's name and with its tags."""
    problems.need(
        bool(_CLUSTER_NAME.match(cluster)),
        "cluster",
        f"{shown(cluster)} has to be 3 to {CLUSTER_AT_MOST} lower-case letters, digits and dashes, "
        "beginning with a letter",
    )
    check_tags(problems, tags)


def check_name(problems: Problems, name: str, suffix: str, most: int, what: str) -> None:
    """Add that a component's name makes a resource's name too long. `suffix`: the longest that is put behind it;
    `most`: characters that AWS allows; `what`: the resource. Pulumi adds a dash and seven random digits."""
    room = most - len(suffix) - RANDOM
    problems.need(
        len(name) <= room,
        "name",
        f"{shown(name)} has {len(name)} characters; the name of its {what} leaves room for {room}",
    )


def check_tags(problems: Problems, tags: Mapping[str, str]) -> None:
    """Add what is wrong with tags: mandatory ones that are missing or empty, names that Everspot sets itself, and what
    any service in use would refuse."""
    missing = [name for name in MANDATORY_TAGS if not tags.get(name)]
    problems.need(not missing, "tags", f"mandatory and missing: {', '.join(missing)}")
    tag_problems(problems.at("tags"), tags, own=OWN_TAGS, reserved=("aws:", f"{PACKAGE}:"))


def check_arn(problems: Problems, args: Mapping[str, Any], key: str, service: str, resource: str) -> None:
    """Add that an input, where it is given as a text, is not the ARN of such a resource."""
    given = args.get(key)
    if given is not None:
        _check_arn(problems, camel(key), given, service, resource)


def check_arns(problems: Problems, name: str, given: Sequence[Any], service: str, resource: str) -> None:
    """The same of every input of a list."""
    for index, arn in enumerate(given):
        _check_arn(problems, f"{name}[{index}]", arn, service, resource)


def check_secrets(problems: Problems, given: Sequence[str]) -> None:
    """Add every ARN that names neither a secret of Secrets Manager nor a parameter of SSM."""
    for index, arn in enumerate(given):
        wrong = [arn_problem(arn, service, resource) for service, resource in SECRETS.items()]
        told = "is the ARN neither of a secret (arn:aws:secretsmanager:…:secret:…) nor of a parameter (arn:aws:ssm:…)"
        problems.need(None in wrong, f"secretArns[{index}]", f"{shown(arn)} {told}")


def _check_arn(problems: Problems, name: str, given: object, service: str, resource: str) -> None:
    if isinstance(given, str):
        wrong = arn_problem(given, service, resource)
        problems.need(wrong is None, name, wrong or "")


SECRETS = {"secretsmanager": "secret:", "ssm": "parameter/"}
"""The services whose values jobs may read, and how the ARNs of their resources begin."""


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


def service_name(region: pulumi.Output[str], service: str) -> pulumi.Output[str]:
    """The name by which VPC endpoints know a service of AWS."""
    return pulumi.Output.concat("com.amazonaws.", region, ".", service)
