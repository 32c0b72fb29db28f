"""Inputs of those parts of a cluster that name an input differently from the spec, or take it from another part."""

import pulumi
from everspot_clouds.aws.egress import no_proxy
from everspot_clouds.aws.endpoints import layer_bucket_arn, needs_internet, services_for
from everspot_clouds.aws.tags import ZONE
from everspot_core.capacity.catalogue import zone_region
from everspot_core.cluster.manifest import Proxy

from everspot.aws.args import AwsTrainingClusterArgs
from everspot.aws.arns import repository_arn
from everspot.aws.federation import near_arns
from everspot.aws.network import AwsNetworkArgs
from everspot.aws.notifications import list_services
from everspot.aws.rules import AwsEgressArgs
from everspot.aws.store import AwsStoreArgs
from everspot.parts import inputs

CLOUD = "aws"
"""The name of this cloud in the manifest."""


def network_args(
    name: str, args: AwsTrainingClusterArgs, bucket_arns: list[pulumi.Input[str]] | None = None
) -> AwsNetworkArgs:
    """Return the network's inputs. `bucket_arns`: the cluster's own buckets; those of the spec and of near peers are
    added to them. A federation that leads out of the region needs a NAT gateway. An existing VPC is only looked at for
    a way out, where a peer is on another cloud: in which region it is, is not known yet."""
    peers, zones = args.get("federation", []), args.get("zones", [])
    region = (
        zone_region(zones[0]) if peers and zones and ZONE.match(zones[0]) else ""
    )  # a wrong one is refused elsewhere
    network = inputs(AwsNetworkArgs, args, cluster=name)
    services = services_for(args, "secret_arns", "image_repositories", list_services(args.get("notifications")))
    if peers:
        abroad = any(peer["cloud"] != CLOUD for peer in peers)
        network["scheduler_nat"] = abroad if "vpc_id" in args else needs_internet(region, peers)
    if services:
        network["services"] = list(dict.fromkeys([*network.get("services", []), *services]))
    if bucket_arns is not None:
        repositories = filter(None, map(repository_arn, args.get("image_repositories", [])))
        layers = sorted({layer_bucket_arn(arn.split(":")[3]) for arn in repositories})
        further = [*args.get("read_bucket_arns", []), *layers]
        network["bucket_arns"] = [*bucket_arns, *further, *near_arns(peers, region)]
    return network


def store_args(name: str, args: AwsTrainingClusterArgs) -> AwsStoreArgs:
    """Return the buckets' inputs."""
    return inputs(AwsStoreArgs, args, cluster=name, retain=args.get("retain_store", True))


def build_proxy(egress: AwsEgressArgs, region: str) -> Proxy | None:
    """Return the proxy that machines use, if there is one."""
    url = egress.get("proxy")
    return None if url is None else Proxy(url=url, no_proxy=no_proxy(region, egress.get("no_proxy")))
