"""The tags of resources: owner and cost allocation, cluster and role."""

from collections.abc import Mapping

from everspot_clouds.aws.rules import CLUSTER_TAG, ROLE_TAG
from everspot_clouds.aws.tags import tag_problems
from everspot_core.validation.problems import Problems

from everspot.common import PACKAGE, check_cluster_name, check_mandatory_tags

OWN_TAGS = 5
"""Number of tags that Everspot itself sets on instances: cluster, store, role, launch and Name. It leaves 45 to the
user."""


def check_common(problems: Problems, cluster: str, tags: Mapping[str, str]) -> None:
    """Add a problem for each mistake in a cluster's name and in its tags."""
    check_cluster_name(problems, cluster)
    check_tags(problems, tags)


def check_tags(problems: Problems, tags: Mapping[str, str]) -> None:
    """Add a problem for each mistake in tags: mandatory tags that are missing or empty, keys that Everspot sets itself,
    and anything that one of the services would refuse."""
    check_mandatory_tags(problems, tags)
    tag_problems(problems.at("tags"), tags, own=OWN_TAGS, reserved=("aws:", f"{PACKAGE}:"))


def cluster_tags(cluster: str, tags: Mapping[str, str], **more: str) -> dict[str, str]:
    """Return the tags of one resource: the user's, the cluster's, and the given ones."""
    return {**tags, CLUSTER_TAG: cluster, **more}


def instance_tags(cluster: str, tags: Mapping[str, str], role: str) -> dict[str, str]:
    """Return the tags of an instance and of its volumes. Scheduler and CLI find the instance by them."""
    return cluster_tags(cluster, tags, **{ROLE_TAG: role, "Name": f"{cluster}-{role}"})
