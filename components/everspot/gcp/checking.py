"""Checks the spec of a whole cluster, and refuses it with all of its problems before anything is declared."""

from collections.abc import Callable

from everspot_clouds.gcp.gpus import FAMILIES
from everspot_clouds.gcp.network import zone_problems
from everspot_core.capacity.catalogue import zone_region
from everspot_core.jobs.records import Role
from everspot_core.validation.bounds import check_values
from everspot_core.validation.problems import Problems

from everspot import common
from everspot.anomalies import check_anomalies
from everspot.capacity import check_gpus, check_prices
from everspot.custom_types import check_type, declared_types, resolve_types
from everspot.federation import check_peers
from everspot.gcp import tagging
from everspot.gcp.args import GcpTrainingClusterArgs
from everspot.gcp.capacity import check_capacity, parse_capacity, type_names
from everspot.gcp.identity import check_buckets, check_repositories, check_secrets
from everspot.gcp.lacking import lacking_problems
from everspot.gcp.launch import check_machine, manifest_problem
from everspot.gcp.monitoring import check_monitoring
from everspot.gcp.network import check_network
from everspot.gcp.notifications import check_notifications
from everspot.gcp.parts import CLOUD, network_args, store_args
from everspot.gcp.scheduler import DEFAULT_TYPE
from everspot.gcp.scraping import check_prometheus
from everspot.gcp.store import check_store
from everspot.limits import check_limits, check_shares
from everspot.manifest import build_manifest

_LONGEST_URL = "gs://" + "x" * 63


def check_cluster(
    name: str, args: GcpTrainingClusterArgs, *, zones_of: Callable[[], tuple[str, list[str]] | None] = lambda: None
) -> None:
    """Refuse a spec with all of its problems. `zones_of`: gives the region and its zones; None if Google does not say.

    Raises:
        pulumi.InputPropertiesError: if anything is wrong; it carries each problem with the input's path.
    """
    common.refuse_bad(
        f"GcpTrainingCluster {name}",
        lambda problems: cluster_problems(problems, name, args),
        lambda problems: asked_zones(problems, args, zones_of()),
    )


def asked_zones(problems: Problems, args: GcpTrainingClusterArgs, region_zones: tuple[str, list[str]] | None) -> None:
    """Add the zones that the region does not have. `region_zones`: region and its zones, None if unknown."""
    if region_zones is not None:
        zone_problems(problems, zones=args["zones"], region=region_zones[0], region_zones=region_zones[1])


def cluster_problems(problems: Problems, name: str, args: GcpTrainingClusterArgs) -> None:
    """Add a problem for each mistake in a spec that can be found without asking Google."""
    lacking_problems(problems, args)
    tagging.check_common(problems, name, args["tags"])
    check_store(problems, store_args(name, args))
    check_buckets(problems, args.get("read_buckets", []), job_role=args.get("job_role", True))
    check_secrets(problems, args.get("secrets", []))
    check_repositories(problems, args.get("image_repositories", []))
    if "notifications" in args:
        check_notifications(problems.at("notifications"), args["notifications"])
    check_anomalies(problems.at("anomalies"), args.get("anomalies", {}))
    if "monitoring" in args:
        check_monitoring(problems.at("monitoring"), args["monitoring"])
    if "prometheus" in args:
        check_prometheus(problems.at("prometheus"), args["prometheus"])
    check_peers(problems, name, args.get("federation", []))
    check_shares(problems.at("shares"), args.get("shares", {}))
    check_network(problems, network_args(name, args))
    zones = args["zones"]
    check_capacity(problems.at("capacity"), args["capacity"], zones)
    check_gpus(problems, args["capacity"], args.get("gpu_arches"), FAMILIES)
    if not problems.collected:
        check_prices(problems.at("capacity"), args["capacity"], parse_capacity(args["capacity"]), zone_region(zones[0]))
    check_machine(problems, args, type_names(args["capacity"]))
    types = resolve_types(args["capacity"]["instance_types"])
    fleets = {types[entry["type"]].arch for entry in args["capacity"]["instance_types"] if entry["type"] in types}
    check_type(problems, "schedulerType", args.get("scheduler_type", DEFAULT_TYPE), fleets)
    before = len(problems.collected)
    check_limits(problems.at("limits"), args.get("limits", {}))
    if len(problems.collected) == before:
        _check_size(problems, name, args)
    check_values(problems, args)


def _check_size(problems: Problems, name: str, args: GcpTrainingClusterArgs) -> None:
    """Add a problem if the manifest is larger than metadata holds. Its durations have to be valid."""
    facts = ("region", "control_url", "data_url", "queue_url", "account", "job_role")
    longest = dict.fromkeys(facts, _LONGEST_URL * 2)
    text = build_manifest(
        Role.SCHEDULER,
        cloud=CLOUD,
        cluster=name,
        limits=args.get("limits", {}),
        types=declared_types(args["capacity"]["instance_types"]),
        machine={},
        facts=longest,
        read_buckets=args.get("read_buckets"),
    )
    reason = manifest_problem(text)
    problems.need(reason is None, "capacity.instanceTypes", f"too many are declared in place: {reason}")
