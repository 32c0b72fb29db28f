"""Checks the spec of a whole cluster, and refuses it with all of its problems before anything is declared."""

from collections.abc import Callable

from everspot_clouds.aws.gpus import FAMILIES
from everspot_clouds.aws.network import zone_problems
from everspot_clouds.aws.tags import ZONE
from everspot_core.capacity.catalogue import zone_region
from everspot_core.jobs.records import Role
from everspot_core.validation.bounds import check_values
from everspot_core.validation.problems import Problems

from everspot import common
from everspot.anomalies import check_anomalies
from everspot.aws import arns, tagging
from everspot.aws.args import AwsTrainingClusterArgs
from everspot.aws.capacity import check_capacity, check_offers
from everspot.aws.launch import check_machine, manifest_problem
from everspot.aws.monitoring import check_monitoring
from everspot.aws.network import check_network
from everspot.aws.notifications import check_notifications
from everspot.aws.parts import CLOUD, build_proxy, network_args, store_args
from everspot.aws.scheduler import DEFAULT_TYPE
from everspot.aws.scraping import check_prometheus
from everspot.aws.store import check_store
from everspot.capacity import check_gpus
from everspot.custom_types import check_type, declared_types, resolve_types
from everspot.federation import check_peers
from everspot.limits import check_limits, check_shares
from everspot.manifest import build_manifest

_LONGEST_URL = "s3://" + "x" * 63 + "?region=ap-southeast-99"


def check_cluster(
    name: str, args: AwsTrainingClusterArgs, *, zones_of: Callable[[], tuple[str, list[str]] | None] = lambda: None
) -> None:
    """Refuse a spec with all of its problems. `zones_of`: gives the region and its zones; None if AWS does not say.

    Raises:
        pulumi.InputPropertiesError: if anything is wrong; it carries each problem with the input's path.
    """
    common.refuse_bad(
        f"AwsTrainingCluster {name}",
        lambda problems: cluster_problems(problems, name, args),
        lambda problems: asked_zones(problems, args, zones_of()),
    )


def asked_zones(problems: Problems, args: AwsTrainingClusterArgs, region_zones: tuple[str, list[str]] | None) -> None:
    """Add the zones of a new network that the region does not have.

    `region_zones`: the region and its zones, None if unknown.
    """
    zones = args.get("zones", [])
    if region_zones is not None and zones and "vpc_id" not in args and "subnet_ids" not in args:
        zone_problems(problems, zones=zones, region=region_zones[0], region_zones=region_zones[1])


def check_region(name: str, args: AwsTrainingClusterArgs, region: str) -> str:
    """Return the provider's region, once the settings are known to go with it. Those of an existing network name none.

    Raises:
        pulumi.InputPropertiesError: if they do not.
    """
    problems = Problems()
    arns.check_repositories(problems, args.get("image_repositories", []), region)
    common.raise_bad(problems, f"AwsTrainingCluster {name}")
    return region


def cluster_problems(problems: Problems, name: str, args: AwsTrainingClusterArgs) -> None:
    """Add a problem for each mistake in a spec that can be found without asking AWS."""
    tagging.check_common(problems, name, args["tags"])
    check_store(problems, store_args(name, args))
    arns.check_arns(problems, "readBucketArns", args.get("read_bucket_arns", []), "s3", "")
    arns.check_arn(problems, args, "permissions_boundary_arn", "iam", "policy/")
    arns.check_arns(problems, "volumeKeyArns", args.get("volume_key_arns", []), "kms", "key/")
    arns.check_secrets(problems, args.get("secret_arns", []))
    zones = args.get("zones", [])
    region = zone_region(zones[0]) if zones and ZONE.match(zones[0]) else None  # a wrong one is refused below
    arns.check_repositories(problems, args.get("image_repositories", []), region)
    if "notifications" in args:
        check_notifications(problems.at("notifications"), args["notifications"])
    check_anomalies(problems.at("anomalies"), args.get("anomalies", {}))
    if "monitoring" in args:
        check_monitoring(problems.at("monitoring"), args["monitoring"])
    if "prometheus" in args:
        check_prometheus(problems.at("prometheus"), args["prometheus"])
    check_peers(problems, name, args.get("federation", []))
    check_shares(problems.at("shares"), args.get("shares", {}))
    network = network_args(name, args)
    check_network(problems, network)
    zones = network.get("zones", [])
    check_capacity(problems.at("capacity"), args["capacity"], len(network.get("subnet_ids") or zones), zones)
    check_gpus(problems, args["capacity"], args.get("gpu_arches"), FAMILIES)
    if zones and not problems.collected:
        check_offers(problems.at("capacity"), args["capacity"], region=zone_region(zones[0]), zones=zones)
    check_machine(problems, args)
    catalogued = resolve_types(args["capacity"]["instance_types"])
    fleets = {
        catalogued[entry["type"]].arch for entry in args["capacity"]["instance_types"] if entry["type"] in catalogued
    }
    check_type(problems, "schedulerType", args.get("scheduler_type", DEFAULT_TYPE), fleets)
    limits = args.get("limits", {})
    before = len(problems.collected)
    check_limits(problems.at("limits"), limits)
    if len(problems.collected) == before:
        longest = dict.fromkeys(("region", "control_url", "data_url", "queue_url"), _LONGEST_URL * 2)
        types = declared_types(args["capacity"]["instance_types"])
        proxy = build_proxy(args.get("egress", {}), "")
        text = build_manifest(
            Role.SCHEDULER,
            cloud=CLOUD,
            cluster=name,
            limits=limits,
            types=types,
            machine={},
            facts=longest,
            proxy=proxy,
        )
        reason = manifest_problem(text)
        problems.need(reason is None, "capacity.instanceTypes", f"too many are declared in place: {reason}")
    check_values(problems, args)
