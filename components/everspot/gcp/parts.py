"""Inputs of those parts of a cluster that name an input differently from the spec, or take it from another part."""

import pulumi
from everspot_clouds.gcp.hourly import Upkeep

from everspot.gcp.args import GcpTrainingClusterArgs
from everspot.gcp.network import GcpNetworkArgs
from everspot.gcp.scheduler import DEFAULT_TYPE
from everspot.gcp.store import GcpStoreArgs
from everspot.parts import inputs

CLOUD = "gcp"
"""The name of this cloud in the manifest."""


def network_args(
    name: str, args: GcpTrainingClusterArgs, agent_account: pulumi.Input[str] | None = None
) -> GcpNetworkArgs:
    """Return the network's inputs. A federation with clusters of other clouds needs NAT for the scheduler: Private
    Google Access reaches Google alone."""
    network = inputs(GcpNetworkArgs, args, cluster=name)
    if "network" not in args and any(peer["cloud"] != CLOUD for peer in args.get("federation", [])):
        network["scheduler_nat"] = True
    if agent_account is not None:
        network["agent_account"] = agent_account
    return network


def store_args(name: str, args: GcpTrainingClusterArgs) -> GcpStoreArgs:
    """Return the buckets' inputs."""
    return inputs(GcpStoreArgs, args, cluster=name, retain=args.get("retain_store", True))


def build_upkeep(name: str, args: GcpTrainingClusterArgs) -> Upkeep:
    """Return the costs of the cluster while no agent runs."""
    return Upkeep(
        scheduler_type=args.get("scheduler_type", DEFAULT_TYPE),
        nat=network_args(name, args).get("nat", False) or network_args(name, args).get("scheduler_nat", False),
        monitoring="monitoring" in args,
    )
