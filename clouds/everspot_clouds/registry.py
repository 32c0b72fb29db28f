"""The known clouds. Each is imported when it is used, because its clients are not installed everywhere."""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, cast

from everspot_clouds.base import Provider

if TYPE_CHECKING:
    from collections.abc import Sequence

    from everspot_core.clock import Clock
    from everspot_core.cluster.checks import Check
    from everspot_core.cluster.preflight import PreflightPlan
    from everspot_core.governance.commitments import CommitmentPlan
    from everspot_core.jobs.job_rules import CloudRules

    from everspot_clouds.base.drift import AddedByHand, KeptResource
    from everspot_clouds.base.project_setup import CloudStarter
    from everspot_clouds.base.resources import ResourceKinds


@dataclass(frozen=True)
class CloudEntry:
    """One cloud. `module`: the module with its `PROVIDER`; `schemes`: URL schemes of its stores, none where they are
    another cloud's."""

    module: str
    schemes: tuple[str, ...]


CLOUDS = {
    "aws": CloudEntry("everspot_clouds.aws.provider", ("s3",)),
    "gcp": CloudEntry("everspot_clouds.gcp.provider", ("gs",)),
    "kubernetes": CloudEntry("everspot_clouds.kubernetes.provider", ()),
    "folder": CloudEntry("everspot_clouds.folder", ("file", "memory")),
}
"""The clouds by their names in the manifest."""

STORE_URLS = "s3://…, gs://… or file:///…"
"""How the URLs of the clouds' stores begin, for people."""

DEFAULT_CLOUD = "aws"
"""The cloud whose metadata service an instance asks if no cloud is named."""


REVIEWABLE = ("aws", "gcp")
"""The clouds that have resources to review. The types of these begin with the cloud's name."""

DEPLOYABLE = (*REVIEWABLE, "kubernetes")
"""The clouds on which a cluster can be declared. The network and buckets around a Kubernetes cluster belong to the
cloud of its nodes."""


class UnknownCloud(ValueError):
    """A cloud that this version does not know."""


def provider(cloud: str) -> Provider:
    """Return the adapter to a cloud.

    Raises:
        UnknownCloud: if no cloud has this name.
    """
    if cloud not in CLOUDS:
        raise UnknownCloud(f"this version has no adapter for {cloud}; it knows {', '.join(sorted(CLOUDS))}")
    return cast(Provider, import_module(CLOUDS[cloud].module).PROVIDER)


def resource_kinds() -> "ResourceKinds":
    """Return the kinds of resources of all known clouds, for a reviewer of a change."""
    from everspot_clouds.base.resources import joined

    return joined(*(import_module(f"everspot_clouds.{cloud}.resources").KINDS for cloud in DEPLOYABLE))


def added_by_hand(cloud: str, resources: "Sequence[KeptResource]") -> "list[AddedByHand]":
    """Return the manual additions to a stack's resources in a cloud. Imports that cloud's clients.

    Raises:
        UnknownCloud: if drift cannot be looked for on this cloud.
        CloudError: if the cloud refuses or does not answer.
    """
    if cloud not in REVIEWABLE:
        raise UnknownCloud(f"drift cannot be looked for on {cloud}, only on {', '.join(REVIEWABLE)}")
    look = import_module(f"everspot_clouds.{cloud}.drift").added_by_hand
    return cast("list[AddedByHand]", look(resources))


def deployer_checks(plan: "PreflightPlan", clock: "Clock") -> "list[Check]":
    """Return the checks of a planned cluster with the credentials of this process, credentials first. Nothing is
    changed and nothing is launched.

    Raises:
        UnknownCloud: if nothing can be declared in the plan's cloud.
    """
    if plan.manifest.cloud not in DEPLOYABLE:
        raise UnknownCloud(f"{plan.manifest.cloud} has no preflight; there is one on {', '.join(DEPLOYABLE)}")
    make_checks = import_module(f"everspot_clouds.{plan.manifest.cloud}.preflight").deployer_checks
    return cast("list[Check]", make_checks(plan, clock))


def commitment_plans(cloud: str) -> "tuple[CommitmentPlan, ...]":
    """Return a cloud's discounts for a commitment. For a cluster in a folder: those of the usual cloud.

    Raises:
        UnknownCloud: if there is no such cloud.
    """
    if cloud not in CLOUDS:
        raise UnknownCloud(f"this version has no adapter for {cloud}; it knows {', '.join(sorted(CLOUDS))}")
    sells = cloud if cloud in REVIEWABLE else DEFAULT_CLOUD
    return cast("tuple[CommitmentPlan, ...]", import_module(f"everspot_clouds.{sells}.commitments").PLANS)


def starter(cloud: str) -> "CloudStarter":
    """Return the setup of a new project on a cloud.

    Raises:
        UnknownCloud: if nothing can be declared there.
    """
    if cloud not in DEPLOYABLE:
        raise UnknownCloud(f"{cloud!r} is no cloud for projects; choose one of {', '.join(DEPLOYABLE)}")
    return cast("CloudStarter", import_module(f"everspot_clouds.{cloud}.project_setup").STARTER)


def job_rules() -> "CloudRules":
    """Return the rules of all known clouds for job files, because a job may move from one cloud to another."""
    from everspot_core.jobs.job_rules import CloudRules

    all_rules = [provider(cloud).jobs for cloud in CLOUDS]
    return CloudRules(
        variables=tuple(dict.fromkeys(prefix for rules in all_rules for prefix in rules.variables)),
        secrets={form: expression for rules in all_rules for form, expression in rules.secrets.items()},
        images={form: expression for rules in all_rules for form, expression in rules.images.items()},
    )


def find_cloud(url: str) -> str | None:
    """Return the name of the cloud that a store's URL belongs to; None if no cloud has its scheme."""
    scheme = url.partition(":")[0]
    return next((name for name, entry in CLOUDS.items() if scheme in entry.schemes), None)
