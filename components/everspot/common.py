"""The common parts of all components on every cloud: type tokens, checks of names, and the refusal of bad inputs."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import pulumi
from everspot_core.validation.problems import BadInputs, Problems, shown

PACKAGE = "everspot"
"""Name of the component package: the first part of every type token."""

# Names of rules and roles (64) and of buckets (63) begin with it, followed by a suffix and random digits.
MAX_CLUSTER_NAME = 32
"""Most characters of a cluster's name."""

RANDOM_SUFFIX_LENGTH = 8
"""Characters that Pulumi appends to a name: a dash and seven random digits."""

MANDATORY_TAGS = ("Project", "Team", "Environment")
"""Tags that every resource has to carry, so that every cost has an owner."""

_CLUSTER_NAME = re.compile(rf"^[a-z][a-z0-9-]{{1,{MAX_CLUSTER_NAME - 2}}}[a-z0-9]\Z")


def token(kind: str) -> str:
    """Return the type token of a component."""
    return f"{PACKAGE}:index:{kind}"


Target = TypeVar("Target", bound=pulumi.Input[str])


class ListedTarget(NamedTuple, Generic[Target]):
    """An entry of a list in the settings, for which one resource is declared.

    Attributes:
        suffix: The end of the resource's name.
        former_suffix: The end of the name that the resource had when it was named after its place in the list.
        target: The entry.
    """

    suffix: str
    former_suffix: str
    target: Target


def name_by_target(kind: str, targets: Sequence[Target]) -> list[ListedTarget[Target]]:
    """Return the entries of a list, which differ, each with a name that does not depend on its place.

    If the place named the resource, the removal of an entry would make the engine change that entry's resource into
    the next entry's, and delete the next entry's own resource after that. In IAM both are the same grant, which would
    be deleted; EC2 refuses a second rule of the same kind. An output of another resource has no value yet that could
    name it: it is named after its place among the outputs.
    """
    listed: list[ListedTarget[Target]] = []
    outputs = 0
    for index, target in enumerate(targets):
        if isinstance(target, str):
            suffix = f"{kind}-{target}"
        else:
            suffix, outputs = f"{kind}-output-{outputs}", outputs + 1
        listed.append(ListedTarget(suffix, f"{kind}-{index}", target))
    return listed


def former_name(name: str) -> pulumi.ResourceOptions:
    """Return the option by which the engine takes a resource of another name for this one."""
    return pulumi.ResourceOptions(aliases=[pulumi.Alias(name=name)])


def check_cluster_name(problems: Problems, cluster: str) -> None:
    """Add a problem for each mistake in a cluster's name."""
    problems.need(
        bool(_CLUSTER_NAME.match(cluster)),
        "cluster",
        f"{shown(cluster)} has to be 3 to {MAX_CLUSTER_NAME} lower-case letters, digits and dashes, "
        "beginning with a letter",
    )


def check_mandatory_tags(problems: Problems, tags: Mapping[str, str]) -> None:
    """Add the mandatory tags that are missing or empty."""
    missing = [name for name in MANDATORY_TAGS if not tags.get(name)]
    problems.need(not missing, "tags", f"mandatory and missing: {', '.join(missing)}")


def check_name(problems: Problems, name: str, suffix: str, most: int, resource: str) -> None:
    """Add a problem if a component's name makes a resource's name too long. `suffix`: the longest suffix that follows
    the name; `most`: characters that the cloud allows; `resource`: the resource."""
    room = most - len(suffix) - RANDOM_SUFFIX_LENGTH
    problems.need(
        len(name) <= room,
        "name",
        f"{shown(name)} has {len(name)} characters; the name of its {resource} leaves room for {room}",
    )


class BadComponentInputs(pulumi.InputPropertiesError, pulumi.RunError):
    """Inputs that a component refuses. A component served to another language reports each of them there; in a Python
    program this ends the program with its message and without a traceback."""


def warn_if_unknown(resource: pulumi.Resource, warning: str, inputs: Sequence[pulumi.Input[str]]) -> None:
    """Warn at preview if an input is an output of something that the same update makes, so that nothing can be checked
    before it."""

    def warn(values: object) -> None:
        if pulumi.output.contains_unknowns(values):
            pulumi.log.warn(warning, resource)

    if pulumi.runtime.is_dry_run():
        pulumi.Output.all(*inputs).apply(warn, run_with_unknowns=True)


def refuse_bad(component: str, check: Callable[[Problems], None], check_in_cloud: Callable[[Problems], None]) -> None:
    """Refuse a component's inputs with one error.

    Args:
        check: Adds the problems that the inputs alone show.
        check_in_cloud: Adds the problems that only the cloud shows. It is called here if the inputs have problems, so
            that one error has all of them; without any, the program asks the cloud later, and refuses then.

    Raises:
        BadComponentInputs: if any problem was found; it carries each with the input's path.
    """
    problems = Problems()
    check(problems)
    if problems.collected:
        check_in_cloud(problems)
    raise_bad(problems, component)


def raise_bad(problems: Problems, component: str) -> None:
    """Refuse a component's inputs with one error.

    Raises:
        BadComponentInputs: if any problem was found; it carries each with the input's path.
    """
    try:
        problems.raise_any(component)
    except BadInputs as bad:
        details: list[pulumi.InputPropertyErrorDetails] = [
            {"property_path": problem.path, "reason": problem.reason} for problem in bad.shown
        ]
        raise BadComponentInputs(str(bad), details) from None
