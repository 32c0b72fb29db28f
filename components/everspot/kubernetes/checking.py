"""Checks the inputs of a cluster on Kubernetes, and refuses them with all of their problems before anything is
declared."""

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from everspot_clouds.aws.fleet import Ec2Capacity
from everspot_clouds.aws.gpus import FAMILIES
from everspot_clouds.aws.network import zone_problems
from everspot_clouds.aws.tags import ZONE
from everspot_clouds.kubernetes import rules
from everspot_core.capacity.catalogue import zone_region
from everspot_core.validation.bounds import check_values, sound_numbers
from everspot_core.validation.problems import Problems, shown

from everspot import common
from everspot.anomalies import check_anomalies
from everspot.aws import arns, tagging
from everspot.aws.notifications import check_notifications
from everspot.aws.store import AwsStoreArgs, check_store
from everspot.capacity import check_elastic, check_gpus, check_prices, check_types, parse_choice
from everspot.kubernetes.args import (
    AwsKubernetesCapacityArgs,
    AwsKubernetesNodesArgs,
    AwsKubernetesPoolArgs,
    AwsKubernetesPrometheusArgs,
)
from everspot.limits import check_limits, check_shares
from everspot.parts import inputs
from everspot.scraping import check_scraping

_VOLUME_BOUNDS = (20, 16384)
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # RFC 1123, as Kubernetes demands of namespaces
_CLAIM = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_CLAIM = 253
"""A claim's name is a DNS subdomain (Kubernetes, "Object Names and IDs")."""
_SYSTEM = ("default", "kube-system", "kube-public", "kube-node-lease", "karpenter")
_IMAGE = re.compile(r"[^\s@]+@sha256:[0-9a-f]{64}")
_ALIAS = re.compile(r"(al2023|bottlerocket)@.+")
"""Karpenter's other families are Windows, and Amazon Linux 2, which is not maintained any more."""
_ROLE = re.compile(r"[\w+=,.@-]{1,64}")  # IAM API Reference, CreateRole
_LACKS_ZONE = "has no subnet"


def choose_namespace(name: str, args: Mapping[str, Any]) -> str:
    """Return the namespace of a cluster."""
    return str(args.get("namespace", name))


def store_args(name: str, args: AwsKubernetesPoolArgs) -> AwsStoreArgs:
    """Return the buckets' inputs."""
    return inputs(AwsStoreArgs, args, cluster=name, retain=args.get("retain_store", True))


def parse_capacity(capacity: AwsKubernetesCapacityArgs) -> Ec2Capacity:
    """Return the types as a fleet without standing instances, for prices and estimates."""
    return Ec2Capacity(target=0, types=tuple(parse_choice(entry) for entry in capacity["instance_types"]))


def check_pool(
    name: str, args: AwsKubernetesPoolArgs, *, zones_of: Callable[[], tuple[str, list[str]] | None] = lambda: None
) -> None:
    """Refuse inputs with all of their problems. `zones_of`: gives the region and its zones; None if AWS does not say.

    Raises:
        pulumi.InputPropertiesError: if anything is wrong; it carries each problem with the input's path.
    """
    common.refuse_bad(
        f"AwsKubernetesPool {name}",
        lambda problems: pool_problems(problems, name, args),
        lambda problems: add_zone_problems(problems, args, zones_of()),
    )


def add_zone_problems(
    problems: Problems, args: AwsKubernetesPoolArgs, region_zones: tuple[str, list[str]] | None
) -> None:
    """Add the zones that the region does not have. `region_zones`: the region and its zones, None if unknown."""
    zones = args["capacity"]["elastic"]["zones"]
    if region_zones is not None and zones:
        here = problems.at("capacity.elastic")
        zone_problems(here, zones=zones, region=region_zones[0], region_zones=region_zones[1])


def pool_problems(problems: Problems, name: str, args: AwsKubernetesPoolArgs) -> None:
    """Add a problem for each mistake that can be found without asking AWS or the Kubernetes cluster."""
    tagging.check_common(problems, name, args["tags"])
    _check_place(problems, name, args)
    _check_nodes(problems.at("nodes"), args["nodes"])
    _check_job_images(problems, args)
    check_store(problems, store_args(name, args))
    arns.check_arns(problems, "readBucketArns", args.get("read_bucket_arns", []), "s3", "")
    arns.check_arn(problems, args, "permissions_boundary_arn", "iam", "policy/")
    arns.check_secrets(problems, args.get("secret_arns", []))
    if "prometheus" in args:
        _check_prometheus(problems.at("prometheus"), args["prometheus"])
    if "notifications" in args:
        check_notifications(problems.at("notifications"), args["notifications"])
    check_anomalies(problems.at("anomalies"), args.get("anomalies", {}))
    check_shares(problems.at("shares"), args.get("shares", {}))
    check_limits(problems.at("limits"), args.get("limits", {}))
    _check_capacity(problems.at("capacity"), args["capacity"])
    check_gpus(problems, args["capacity"], args.get("gpu_arches"), FAMILIES)
    zones = args["capacity"]["elastic"]["zones"]
    if zones and not problems.collected:
        check_prices(problems.at("capacity"), args["capacity"], parse_capacity(args["capacity"]), zone_region(zones[0]))
    check_values(problems, args)


def _check_place(problems: Problems, name: str, args: AwsKubernetesPoolArgs) -> None:
    """Add the mistakes in the Kubernetes cluster, the namespace, the claim and the image."""
    eks, namespace, image = args["eks_cluster"], choose_namespace(name, args), args["image"]
    problems.need(bool(rules.EKS_NAME.fullmatch(eks)), "eksCluster", f"{shown(eks)} is no name of an EKS cluster")
    problems.need(args.get("context", " ") != "", "context", "is empty; leave it out for the cluster's own endpoint")
    context = args.get("context", "")
    problems.need(not context.startswith(rules.GKE_CONTEXT), "context", f"{shown(context)} {rules.GKE}")
    fits = bool(_NAMESPACE.fullmatch(namespace))
    problems.need(fits, "namespace", f"{shown(namespace)} has to be lower-case letters, digits and dashes, at most 63")
    own = f"{namespace} has other things in it: the cluster needs a namespace of its own"
    problems.need(namespace not in _SYSTEM, "namespace", own)
    claim = args.get("datasets_claim", "datasets")
    is_name = len(claim) <= _LONGEST_CLAIM and bool(_CLAIM.fullmatch(claim))
    reason = f"{shown(claim)} has to be lower-case letters, digits, dashes and dots, at most {_LONGEST_CLAIM}"
    problems.need(is_name, "datasetsClaim", reason)
    pinned = bool(_IMAGE.fullmatch(image))
    problems.need(pinned, "image", f"{shown(image)} has to end in the image's digest: REPOSITORY@sha256:…")


def _check_prometheus(problems: Problems, args: AwsKubernetesPrometheusArgs) -> None:
    """Add the mistakes in who reads the metrics."""
    namespaces = args["namespaces"]
    problems.need(bool(namespaces), "namespaces", "is empty; name the namespace of Prometheus")
    for index, name in enumerate(namespaces):
        fits = bool(_NAMESPACE.fullmatch(name))
        problems.need(fits, f"namespaces[{index}]", f"{shown(name)} is no name of a namespace")
    check_scraping(problems, args)


def _check_nodes(problems: Problems, nodes: AwsKubernetesNodesArgs) -> None:
    """Add the mistakes in what Karpenter launches nodes with."""
    role, alias = nodes["role"], nodes["ami_alias"]
    problems.need(bool(_ROLE.fullmatch(role)), "role", f"{shown(role)} is no name of a role; an ARN is none")
    problems.need(bool(_ALIAS.fullmatch(alias)), "amiAlias", f"{shown(alias)} is neither al2023@… nor bottlerocket@…")
    for key, tags in (("subnetTags", nodes["subnet_tags"]), ("securityGroupTags", nodes["security_group_tags"])):
        problems.need(bool(tags), key, "is empty: all in the account would be chosen")
    if "volume_gib" in nodes:
        problems.number(nodes["volume_gib"], "volumeGib", *_VOLUME_BOUNDS, whole=True)


def _check_job_images(problems: Problems, args: AwsKubernetesPoolArgs) -> None:
    """Add the mistake of nodes on which a job makes no container. Bottlerocket's kernel gives no user namespaces
    (bottlerocket-os/bottlerocket, pull request 435), and its user data writes no files."""
    bottlerocket = args["nodes"]["ami_alias"].startswith("bottlerocket@")
    reason = "is true, and nodes.amiAlias is of Bottlerocket, on which a job makes no container: name al2023@…"
    problems.need(not (args.get("job_images", False) and bottlerocket), "jobImages", reason)


def _check_capacity(problems: Problems, args: AwsKubernetesCapacityArgs) -> None:
    """Add the mistakes in the nodes' types, zones, markets and number."""
    elastic = args["elastic"]
    zones = elastic["zones"]
    problems.need(bool(zones), "elastic.zones", "is empty; name the zones of the nodes' subnets")
    check_elastic(problems.at("elastic"), elastic, (), all_zones="those of the subnets", lacks=_LACKS_ZONE)
    for index, zone in enumerate(zones):
        problems.need(
            bool(ZONE.match(zone)), f"elastic.zones[{index}]", f"{shown(zone)} is no zone, such as us-east-1a"
        )
    regions = sorted({zone_region(zone) for zone in zones if ZONE.match(zone)})
    problems.need(len(regions) < 2, "elastic.zones", f"are of several regions: {', '.join(regions)}")
    problems.need(len(set(zones)) == len(zones), "elastic.zones", "names a zone twice")
    args = cast(AwsKubernetesCapacityArgs, sound_numbers(problems, args))
    types = args["instance_types"]
    problems.need(bool(types), "instanceTypes", "is empty")
    catalogued = check_types(problems, types)
    arches = sorted({catalogued[entry["type"]].arch for entry in types if entry["type"] in catalogued})
    problems.need(len(arches) < 2, "instanceTypes", f"are of {' and '.join(arches)}, and the image is of one of them")
    names = [entry["type"] for entry in types]
    problems.need(len(set(names)) == len(names), "instanceTypes", "names a type twice")
    for index, entry in enumerate(types):
        strange = [zone for zone in entry.get("zones", ()) if zones and zone not in zones]
        outside = f"{', '.join(strange)}: not in elastic.zones"
        problems.need(not strange, f"instanceTypes[{index}].zones", outside)
