"""What a cluster's spec says to each of its parts."""

from typing import TYPE_CHECKING, Any, cast

import pulumi
from everspot_clouds.aws.egress import no_proxy
from everspot_core.manifest import Proxy

from everspot.common import SECRETS
from everspot.events import InterruptionEvents
from everspot.identity import IdentityArgs
from everspot.network import NetworkArgs
from everspot.notifications import services_of
from everspot.rules import EgressArgs
from everspot.store import Store, StoreArgs

if TYPE_CHECKING:
    from everspot.cluster import TrainingClusterArgs


def network_args(
    name: str, args: "TrainingClusterArgs", bucket_arns: list[pulumi.Input[str]] | None = None
) -> NetworkArgs:
    """The network's inputs. `bucket_arns`: the cluster's buckets; those that the spec adds come on top."""
    network = cast(NetworkArgs, _same(name, args, NetworkArgs))
    asked = [service for service in SECRETS if any(f":{service}:" in arn for arn in args.get("secret_arns", []))]
    asked += services_of(args.get("notifications"))
    if asked:
        network["services"] = list(dict.fromkeys([*network.get("services", []), *asked]))
    if bucket_arns is not None:
        network["bucket_arns"] = [*bucket_arns, *args.get("read_bucket_arns", [])]
    return network


def store_args(name: str, args: "TrainingClusterArgs") -> StoreArgs:
    """The buckets' inputs."""
    return cast(StoreArgs, {**_same(name, args, StoreArgs), "retain": args.get("retain_store", True)})


def identity_args(name: str, args: "TrainingClusterArgs", store: Store, events: InterruptionEvents) -> IdentityArgs:
    """The identities' inputs."""
    arns = {"control_arn": store.control_arn, "data_arn": store.data_arn, "queue_arn": events.queue_arn}
    return cast(IdentityArgs, {**_same(name, args, IdentityArgs), **arns})


def _same(name: str, args: "TrainingClusterArgs", kind: type) -> dict[str, Any]:
    """What a part calls by the name that the spec calls it by."""
    return {"cluster": name, **{key: value for key, value in args.items() if key in kind.__annotations__}}


def proxy_of(egress: EgressArgs, region: str) -> Proxy | None:
    """The proxy that machines are told of, if there is one."""
    url = egress.get("proxy")
    return None if url is None else Proxy(url=url, no_proxy=no_proxy(region, egress.get("no_proxy")))
