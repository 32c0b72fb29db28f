"""The instances' network: private subnetworks of agents and of the scheduler, without any connection from the internet.

A subnetwork belongs to a region and spans its zones, so that one block of addresses serves them all. The scheduler has
one of its own because Cloud NAT serves subnetworks, not instances: a federation opens the way out to it alone. It has
it always: a subnetwork with an instance in it cannot go. Instances have no external address. With Private Google Access
they reach Google's APIs, and without NAT nothing else (VPC documentation, "Private Google Access").
"""

from ipaddress import IPv4Network
from typing import Any, NotRequired, TypedDict

import pulumi
from everspot_clouds.gcp import fixed_prices as fixed
from everspot_clouds.gcp.names import LONGEST, RESOURCE
from everspot_clouds.gcp.network import IAP, PROBERS, network_problems, resource_problem, zone_problems
from everspot_clouds.gcp.rules import DOOR_TAG, HEALTH_PORT
from everspot_core.validation.problems import Problems, camel
from pulumi_gcp import compute

from everspot import common
from everspot.gcp import preview_queries, tagging
from everspot.guard import PlaceChange, Settings, list_changed
from everspot.parts import outputs

DEFAULT_CIDR = "10.64.0.0/16"
"""Addresses of a new network when none are given."""
SCHEDULER_CIDR = "10.63.255.240/28"
"""The scheduler's addresses in a new network when none are given."""

NETWORK_FORM = "projects/PROJECT/global/networks/NAME"
SUBNETWORK_FORM = "projects/PROJECT/regions/REGION/subnetworks/NAME"

ALLOWED, DENIED = 1000, 65000
"""Priorities of the rules that allow something, and of the one that denies the rest; lower numbers win."""

FLOW_LOGS: "compute.SubnetworkLogConfigArgsDict" = {
    "aggregation_interval": "INTERVAL_10_MIN",
    "flow_sampling": 0.5,
    "metadata": "INCLUDE_ALL_METADATA",
}
"""How flows are logged: every second one, in intervals of ten minutes, which costs least."""

NAT_COST = (
    f"Cloud NAT costs about ${float(fixed.NAT_VM.usd)} an hour for each instance that it serves, at most "
    f"${float(fixed.NAT_MOST.usd)}, and ${float(fixed.NAT_GB.usd)} per GB (list prices)."
)
FOR_SCHEDULER = " It is the federation's way out, and serves the scheduler alone."


class GcpNetworkArgs(TypedDict):
    """Inputs of `GcpNetwork`: `vpc_cidr` for a new network, or `network` and `subnetwork` for an existing one."""

    cluster: str
    """Name of the cluster."""
    tags: dict[str, str]
    """Tags of the cluster; Project, Team and Environment are mandatory. Networks have no labels themselves."""
    zones: list[str]
    """Names of the zones that instances may be in, all of one region."""
    vpc_cidr: NotRequired[str]
    """IPv4 block of the agents' subnetwork in a new network, /8 to /29. Default: 10.64.0.0/16."""
    scheduler_cidr: NotRequired[str]
    """IPv4 block of the scheduler's subnetwork in a new network, /8 to /29. Default: 10.63.255.240/28."""
    peer_cidrs: NotRequired[list[str]]
    """Blocks that a new network must not overlap: offices, peered networks, other environments."""
    network: NotRequired[pulumi.Input[str]]
    """An existing network, projects/PROJECT/global/networks/NAME."""
    subnetwork: NotRequired[pulumi.Input[str]]
    """A subnetwork of the existing network in the cluster's region, projects/PROJECT/regions/REGION/subnetworks/NAME.
    It needs Private Google Access."""
    nat: NotRequired[bool]
    """Whether instances of a new network may open connections to the internet, through Cloud NAT, on port 443. It costs
    money. Default: false."""
    scheduler_nat: NotRequired[bool]
    """Whether the scheduler of a new network may, and nobody else. It costs money. Default: false."""
    flow_logs: NotRequired[bool]
    """Whether the flows of a new network are logged, to Cloud Logging. It costs money. Default: false."""
    iap_ssh: NotRequired[bool]
    """Whether people may open a shell on instances through Identity-Aware Proxy. Default: false."""
    firewall: NotRequired[bool]
    """Whether the firewall rules of an existing network are made here. False if its owner makes them, as with a Shared
    VPC: in from the health checks' addresses to the agents' port. Default: true."""
    agent_account: NotRequired[pulumi.Input[str]]
    """Email of the agents' service account: health checks reach only its instances. Default: all instances of the
    network."""


class GcpNetwork(pulumi.ComponentResource):
    """A new network with private subnetworks of agents and scheduler, or an existing one, and the firewall rules of the
    cluster.

    No instance has an external address. The firewall of a new network lets nothing in but Google's health checks of
    the agents, and lets out connections to port 443 alone.
    """

    network: pulumi.Output[str]
    """The network, projects/PROJECT/global/networks/NAME."""
    subnetwork: pulumi.Output[str]
    """The instances' subnetwork, projects/PROJECT/regions/REGION/subnetworks/NAME."""
    scheduler_subnetwork: pulumi.Output[str]
    """The scheduler's subnetwork; of an existing network the same one."""
    region: pulumi.Output[str]
    """Region of the subnetwork."""

    def __init__(self, name: str, args: GcpNetworkArgs, opts: pulumi.ResourceOptions | None = None):
        super().__init__(common.token("GcpNetwork"), name, {}, opts)
        problems = Problems()
        tagging.check_common(problems, args["cluster"], args["tags"])
        check_resource_name(problems, name, "-subnetwork", "subnetwork")
        check_network(problems, args)
        common.raise_bad(problems, f"GcpNetwork {name}")
        self._name, self._args = name, args
        self._child = pulumi.ResourceOptions(parent=self)
        self._place = preview_queries.read_place(self)
        zones = self._zones()
        self.region = pulumi.Output.all(self._place, zones).apply(lambda seen: str(seen[0]["region"]))
        if "network" in args:
            self._adopt(args["network"], args["subnetwork"])
        else:
            self._create(args.get("vpc_cidr", DEFAULT_CIDR))
        if args.get("firewall", True):
            purpose = "Google's health checks of the agents"
            self.allow_in("health", purpose, list(PROBERS), HEALTH_PORT, args.get("agent_account"))
            if args.get("iap_ssh", False):
                self._rule("shell", "People, through Identity-Aware Proxy", list(IAP), 22, target_tags=[DOOR_TAG])
        self.register_outputs(outputs(self))

    def allow_in(
        self, suffix: str, purpose: str, blocks: list[str], port: int, account: pulumi.Input[str] | None
    ) -> None:
        """Let blocks of addresses reach a port of one service account's instances; of all if None is named."""
        self._rule(suffix, purpose, blocks, port, target_service_accounts=None if account is None else [account])

    def _zones(self) -> pulumi.Output[list[str]]:
        """Return the cluster's zones, known once the region is known to have them."""
        region = self._place.apply(lambda place: place["region"])
        region_zones = preview_queries.list_zones(self, region)
        return pulumi.Output.all(region, region_zones).apply(
            lambda seen: check_zones(f"GcpNetwork {self._name}", self._args["zones"], seen[0], seen[1])
        )

    def _create(self, cidr: str) -> None:
        args = self._args
        network = compute.Network(
            f"{self._name}-vpc",
            auto_create_subnetworks=False,
            description=f"Everspot cluster {args['cluster']}",
            opts=self._child,
        )
        agents = self._subnetwork("subnetwork", network, cidr, "Instances")
        scheduler = self._subnetwork("scheduler", network, args.get("scheduler_cidr", SCHEDULER_CIDR), "Scheduler")
        self.network, self.subnetwork, self.scheduler_subnetwork = network.id, agents.id, scheduler.id
        self._out()
        if args.get("nat", False):
            self._nat(network, [agents, scheduler], NAT_COST)
        elif args.get("scheduler_nat", False):
            self._nat(network, [scheduler], NAT_COST + FOR_SCHEDULER)

    def _subnetwork(self, suffix: str, network: "compute.Network", cidr: str, owner: str) -> "compute.Subnetwork":
        return compute.Subnetwork(
            f"{self._name}-{suffix}",
            network=network.id,
            region=self.region,
            ip_cidr_range=cidr,
            private_ip_google_access=True,
            log_config=FLOW_LOGS if self._args.get("flow_logs", False) else None,
            description=f"{owner} of Everspot cluster {self._args['cluster']}",
            opts=self._child,
        )

    def _out(self) -> None:
        """Allow connections to port 443 only. Without NAT these reach only Google's APIs and the subnetwork. The
        metadata server cannot be blocked (VPC documentation, "VPC firewall rules", always allowed traffic)."""
        for suffix, priority, allowed in (("out-https", ALLOWED, True), ("out-rest", DENIED, False)):
            traffic = [{"protocol": "tcp", "ports": ["443"]}] if allowed else [{"protocol": "all"}]
            compute.Firewall(
                f"{self._name}-{suffix}",
                network=self.network,
                direction="EGRESS",
                priority=priority,
                destination_ranges=["0.0.0.0/0"],
                allows=traffic if allowed else None,
                denies=None if allowed else traffic,
                description="Instances to port 443" if allowed else "Instances to anything else",
                opts=self._child,
            )

    def _nat(self, network: "compute.Network", served: "list[compute.Subnetwork]", cost: str) -> None:
        if pulumi.runtime.is_dry_run():
            pulumi.log.info(cost, self)
        router = compute.Router(f"{self._name}-router", network=network.id, region=self.region, opts=self._child)
        compute.RouterNat(
            f"{self._name}-nat",
            router=router.name,
            region=self.region,
            nat_ip_allocate_option="AUTO_ONLY",
            source_subnetwork_ip_ranges_to_nat="LIST_OF_SUBNETWORKS",
            subnetworks=[{"name": each.id, "source_ip_ranges_to_nats": ["ALL_IP_RANGES"]} for each in served],
            log_config={"enable": True, "filter": "ERRORS_ONLY"},
            opts=self._child,
        )

    def _adopt(self, network: pulumi.Input[str], subnetwork: pulumi.Input[str]) -> None:
        common.warn_if_unknown(
            self,
            f"GcpNetwork {self._name}: the network or the subnetwork is made by the same update, and cannot be "
            "checked now. If it does not fit, the update fails when other resources exist already. Make the network in "
            "an update before, or leave out network and subnetwork.",
            [network, subnetwork],
        )
        message = f"GcpNetwork {self._name}: subnetwork names none that can be seen (compute.subnetworks.get)."
        existing = preview_queries.invoke(
            self, "compute/getSubnetwork:getSubnetwork", {"selfLink": subnetwork}, failed=message
        )
        checked = pulumi.Output.all(existing=existing, network=network, region=self.region).apply(
            lambda seen: _check_existing(self._name, seen["existing"], seen["network"], seen["region"])
        )
        self.network = checked.apply(lambda answer: _name(answer["network"]))
        self.subnetwork = self.scheduler_subnetwork = checked.apply(lambda answer: _name(answer["selfLink"]))

    def _rule(
        self,
        suffix: str,
        purpose: str,
        blocks: list[str],
        port: int,
        *,
        target_tags: list[str] | None = None,
        target_service_accounts: list[pulumi.Input[str]] | None = None,
    ) -> None:
        compute.Firewall(
            f"{self._name}-in-{suffix}",
            network=self.network,
            direction="INGRESS",
            priority=ALLOWED,
            source_ranges=blocks,
            allows=[{"protocol": "tcp", "ports": [str(port)]}],
            target_tags=target_tags,
            target_service_accounts=target_service_accounts,
            description=purpose,
            opts=self._child,
        )


def network_place(args: GcpNetworkArgs) -> dict[str, Any]:
    """Return the settings by which the parts of a network that agents need are replaced: the name of an existing
    network, or the addresses of a new one."""
    if "network" in args:
        return {"network": args["network"]}
    return {"vpcCidr": args.get("vpc_cidr", DEFAULT_CIDR)}


def _list_moved(old: Settings, new: Settings) -> list[str]:
    """Return the settings by which running instances lose their network. A subnetwork that only grows is updated (the
    Google provider, `compute_subnetwork`, ip_cidr_range)."""
    before, after, moved = old.get("vpcCidr"), new.get("vpcCidr"), list_changed(old, new)
    if isinstance(before, str) and isinstance(after, str) and IPv4Network(before).subnet_of(IPv4Network(after)):
        return [name for name in moved if name != "vpcCidr"]
    return moved


CUT_OFF = PlaceChange(
    _list_moved,
    "replaces the subnetwork",
    "Google Cloud deletes no subnetwork with instances in it: the update fails when the rest is changed already, and "
    "Cloud NAT no longer serves them",
)
"""The change of a network in which instances run."""


def check_network(problems: Problems, args: GcpNetworkArgs) -> None:
    """Add a problem for each mistake in the choice between a new and an existing network, and in the new one's
    addresses."""
    network_problems(
        problems,
        zones=args["zones"],
        cidr=args.get("vpc_cidr", DEFAULT_CIDR),
        scheduler_cidr=args.get("scheduler_cidr", SCHEDULER_CIDR),
        peer_cidrs=args.get("peer_cidrs", []),
    )
    if "network" not in args and "subnetwork" not in args:
        problems.need("firewall" not in args, "firewall", "is for an existing network; a new one needs its rules")
        return
    problems.need("network" in args and "subnetwork" in args, "subnetwork", "network and subnetwork belong together")
    for key in ("vpc_cidr", "scheduler_cidr", "peer_cidrs", "nat", "scheduler_nat", "flow_logs"):
        problems.need(key not in args, camel(key), "is for a new network; network names an existing one")
    for key, link, form in (
        ("network", args.get("network"), NETWORK_FORM),
        ("subnetwork", args.get("subnetwork"), SUBNETWORK_FORM),
    ):
        reason = resource_problem(link, form) if isinstance(link, str) else None
        problems.need(reason is None, key, reason or "")


def check_zones(component: str, zones: list[str], region: str, region_zones: list[str]) -> list[str]:
    """Return the zones, if the region has them.

    Raises:
        pulumi.InputPropertiesError: with every zone that it lacks.
    """
    problems = Problems()
    zone_problems(problems, zones=zones, region=region, region_zones=region_zones)
    common.raise_bad(problems, component)
    return zones


def check_resource_name(problems: Problems, name: str, suffix: str, resource: str) -> None:
    """Add a problem if a component's name cannot begin the name of a resource of Compute Engine."""
    common.check_name(problems, name, suffix, LONGEST, resource)
    fits = bool(RESOURCE.match(f"{name}x"))
    problems.need(
        fits, "name", f"{name!r} begins the name of its {resource}: a-z, 0-9 and dashes, beginning with a letter"
    )


def _check_existing(name: str, existing: preview_queries.Answer, network: str, region: str) -> preview_queries.Answer:
    problems = Problems()
    problems.need(
        bool(existing.get("privateIpGoogleAccess")),
        "subnetwork",
        f"{existing['name']} has no Private Google Access, without which instances reach neither buckets nor queue",
    )
    own, expected = _name(existing["network"]), _name(network)
    problems.need(own == expected, "subnetwork", f"{existing['name']} belongs to {own}, not to {expected}")
    own_region = str(existing["region"]).rpartition("/")[2]
    problems.need(
        own_region == region, "subnetwork", f"{existing['name']} is in {own_region}, and the cluster in {region}"
    )
    common.raise_bad(problems, f"GcpNetwork {name}")
    return existing


def _name(link: object) -> str:
    """Return a resource's name from a link to it, which begins with a host."""
    return f"projects/{str(link).rpartition('projects/')[2]}"
