"""The labels of resources: owner and cost allocation, cluster and role."""

from collections.abc import Mapping

from everspot_clouds.gcp.labels import label_problems, to_labels
from everspot_clouds.gcp.names import name_problems
from everspot_clouds.gcp.rules import CLUSTER_LABEL, IMAGE_LABEL, ROLE_LABEL
from everspot_core.validation.problems import Problems

from everspot.common import check_cluster_name, check_mandatory_tags

OWN_LABELS = 6
"""Number of labels that Everspot and the provider set on instances: cluster, store, role, image, launch, and the
provider's own."""


def check_common(problems: Problems, cluster: str, tags: Mapping[str, str]) -> None:
    """Add a problem for each mistake in a cluster's name and in its tags."""
    check_cluster_name(problems, cluster)
    name_problems(problems, cluster)
    check_tags(problems, tags)


def check_tags(problems: Problems, tags: Mapping[str, str]) -> None:
    """Add a problem for each mistake in tags: mandatory ones that are missing or empty, keys that Everspot sets itself,
    and tags that cannot be labels."""
    check_mandatory_tags(problems, tags)
    label_problems(problems.at("tags"), tags, own=OWN_LABELS)


def cluster_labels(cluster: str, tags: Mapping[str, str], **more: str) -> dict[str, str]:
    """Return the labels of one resource: the user's tags as labels, the cluster's, and the given ones."""
    return {**to_labels(tags), CLUSTER_LABEL: cluster, **more}


def instance_labels(cluster: str, tags: Mapping[str, str], role: str, image: str) -> dict[str, str]:
    """Return the labels of an instance and of its disk. Scheduler and CLI find the instance by them.

    `image`: its image, projects/PROJECT/global/images/NAME. The name tells `everspot doctor` which image's instances
    never report; names of images are sound labels (RFC 1035, at most 63 characters)."""
    return cluster_labels(cluster, tags, **{ROLE_LABEL: role, IMAGE_LABEL: image.rpartition("/")[2]})
