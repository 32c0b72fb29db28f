"""Tags: whose a resource is, and what pays for it."""

from collections.abc import Mapping

from everspot_clouds.aws.rules import CLUSTER_TAG, ROLE_TAG
from everspot_clouds.aws.tags import tag_problems
from everspot_core.problems import Problems

from everspot.common import PACKAGE, check_cluster_name

MANDATORY_TAGS = ("Project", "Team", "Environment")
"""Tags that everything carries, so that every dollar of a bill has an owner."""

OWN_TAGS = 3
"""Tags of instances that Everspot sets itself: cluster, role and Name. So 47 are the user's."""


def check_common(problems: Problems, cluster: str, tags: Mapping[str, str]) -> None:
    """Add what is wrong with a cluster's name and with its tags."""
    check_cluster_name(problems, cluster)
    check_tags(problems, tags)


def check_tags(problems: Problems, tags: Mapping[str, str]) -> None:
    """Add what is wrong with tags: mandatory ones that are missing or empty, names that Everspot sets itself, and what
    any service in use would refuse."""
    missing = [name for name in MANDATORY_TAGS if not tags.get(name)]
    problems.need(not missing, "tags", f"mandatory and missing: {', '.join(missing)}")
    tag_problems(problems.at("tags"), tags, own=OWN_TAGS, reserved=("aws:", f"{PACKAGE}:"))


def cluster_tags(cluster: str, tags: Mapping[str, str], **more: str) -> dict[str, str]:
    """The tags of one resource: the user's, the cluster's, and the given ones."""
    return {**tags, CLUSTER_TAG: cluster, **more}


def instance_tags(cluster: str, tags: Mapping[str, str], role: str) -> dict[str, str]:
    """The tags of an instance and of its volumes: by these the scheduler and the command find it."""
    return cluster_tags(cluster, tags, **{ROLE_TAG: role, "Name": f"{cluster}-{role}"})
