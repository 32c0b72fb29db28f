"""A whole training cluster from one typed, validated spec."""

from collections.abc import Mapping
from typing import Any

import pulumi
from everspot_clouds.gcp.rules import CLUSTER_LABEL, HEALTH_PORT, STORE_LABEL
from everspot_core.capacity.launching import store_mark
from everspot_core.cluster.boot import boot_deadline
from everspot_core.cluster.manifest import METRICS_PORT, Limits
from everspot_core.documents import format_duration, parse_duration
from everspot_core.jobs.records import Role
from pulumi_gcp import storage

from everspot import common
from everspot.anomalies import build_thresholds
from everspot.capacity import build_catalogue, build_elastic, build_offer, build_standing
from everspot.custom_types import declared_types
from everspot.federation import build_peers, card
from everspot.gcp import preview_queries, tagging
from everspot.gcp.args import GcpTrainingClusterArgs
from everspot.gcp.capacity import parse_capacity, parse_notice
from everspot.gcp.checking import check_cluster
from everspot.gcp.elastic import GcpElasticCapacity, GcpElasticCapacityArgs
from everspot.gcp.events import GcpInterruptionEvents
from everspot.gcp.federation import add_federation
from everspot.gcp.fleet import GcpTrainingFleet, GcpTrainingFleetArgs
from everspot.gcp.identity import GcpIdentity, GcpIdentityArgs
from everspot.gcp.launch import GcpMachineArgs, launched_with, resolve_image
from everspot.gcp.monitoring import add_monitoring, build_monitoring
from everspot.gcp.network import CUT_OFF, GcpNetwork, network_place
from everspot.gcp.notifications import build_notifications
from everspot.gcp.offers import print_hourly_cost, warn_of_zones
from everspot.gcp.parts import CLOUD, build_upkeep, network_args, store_args
from everspot.gcp.scheduler import DEFAULT_TYPE, GcpSchedulerService, GcpSchedulerServiceArgs
from everspot.gcp.store import GcpStore
from everspot.guard import JOB_ROLE, guard, place_guard
from everspot.manifest import build_declared, build_manifest
from everspot.marking import StoreMarking
from everspot.parts import inputs, outputs
from everspot.pricing import declared_prices, unpriced_types
from everspot.scraping import build_metrics


class GcpTrainingCluster(pulumi.ComponentResource):
    """A whole training cluster: network, store, service accounts, standing groups, interruption events and scheduler.
    The component's name is the cluster's name."""

    cluster: pulumi.Output[str]
    """Name of the cluster."""
    control_url: pulumi.Output[str]
    """URL of the control bucket: what the CLI needs to find the cluster."""
    data_url: pulumi.Output[str]
    """URL of the data bucket."""
    queue_url: pulumi.Output[str]
    """Subscription of interruption events, projects/PROJECT/subscriptions/NAME."""
    on_demand_group: pulumi.Output[str]
    """Name of the on-demand managed instance group."""
    spot_group: pulumi.Output[str]
    """Name of the Spot managed instance group."""
    image_id: pulumi.Output[str]
    """The image in use, projects/PROJECT/global/images/NAME."""
    scheduler_group: pulumi.Output[str]
    """Name of the scheduler's managed instance group."""
    agent_account: pulumi.Output[str]
    """Email of the agents' service account."""
    scheduler_account: pulumi.Output[str]
    """Email of the scheduler's service account."""
    network: pulumi.Output[str]
    """The network, projects/PROJECT/global/networks/NAME."""
    subnetwork: pulumi.Output[str]
    """The instances' subnetwork, projects/PROJECT/regions/REGION/subnetworks/NAME."""
    project: pulumi.Output[str]
    """Project of the cluster."""
    region: pulumi.Output[str]
    """Region of the cluster."""
    peer: pulumi.Output[dict[str, str]]
    """This cluster as an entry of another one's `federation`."""

    def __init__(self, name: str, args: GcpTrainingClusterArgs, opts: pulumi.ResourceOptions | None = None):
        marking = StoreMarking(CLUSTER_LABEL, STORE_LABEL)
        marked = pulumi.ResourceOptions(transformations=[marking])
        super().__init__(common.token("GcpTrainingCluster"), name, {}, pulumi.ResourceOptions.merge(opts, marked))
        check_cluster(name, args, zones_of=lambda: preview_queries.zones_now(self))
        self._name, self._args = name, args
        child = pulumi.ResourceOptions(parent=self)
        self.cluster = pulumi.Output.from_input(name)
        place = preview_queries.read_place(self)
        self.project, self.region = place.apply(lambda p: p["project"]), place.apply(lambda p: p["region"])
        # Once for all parts: a new image of the family then makes a new generation, too.
        self.image_id = resolve_image(self, inputs(GcpMachineArgs, args)).apply(lambda image: str(image["link"]))
        store = GcpStore(f"{name}-store", store_args(name, args), child)
        self.control_url, self.data_url = store.control_url, store.data_url
        marking.begin(self.control_url)
        events = GcpInterruptionEvents(f"{name}-events", {"cluster": name, "tags": args["tags"]}, child)
        self.queue_url = events.queue_url
        buckets = {"control_bucket": store.control_bucket, "data_bucket": store.data_bucket}
        own = inputs(GcpIdentityArgs, args, cluster=name, subscription=events.queue_url, **buckets)
        # Before network and roles: a change that jobs would not survive is refused before anything is changed.
        guarded = args.get("guard_jobs", True)
        settings = {**network_place(network_args(name, args)), JOB_ROLE: args.get("job_role", True)}
        place_before = place_guard(self, f"{name}-place", store.control_url, settings, on=guarded, move=CUT_OFF)
        placed = pulumi.ResourceOptions(parent=self, depends_on=place_before)
        identity = self._identity = GcpIdentity(f"{name}-identity", own, placed)
        self.agent_account, self.scheduler_account = identity.agent_account, identity.scheduler_account
        network = GcpNetwork(f"{name}-network", network_args(name, args, identity.agent_account), placed)
        self.network, self.subnetwork = network.network, network.subnetwork
        self._outward = network.scheduler_subnetwork
        # An instance without its firewall rules and its way to Google's services reaches nothing.
        reachable = pulumi.ResourceOptions(parent=self, depends_on=[network])
        agents = inputs(GcpTrainingFleetArgs, args, **self._own(Role.AGENT), heal_after=self._heal_after)
        fleet = GcpTrainingFleet(f"{name}-fleet", agents, reachable)
        self.on_demand_group, self.spot_group = fleet.on_demand_group, fleet.spot_group
        elastic = self._elastic(reachable) if "elastic" in args["capacity"] else None
        scheduler = self._scheduler(elastic, reachable)
        self.scheduler_group = scheduler.group_name
        if "prometheus" in args:
            scraped, port = args["prometheus"], int(args["prometheus"].get("port", METRICS_PORT))
            network.allow_in("metrics", "Prometheus", scraped["cidrs"], port, identity.scheduler_account)
        may_launch = [] if elastic is None else [elastic]
        storage.BucketObject(
            f"{name}-manifest",
            bucket=store.control_bucket,
            name="cluster.json",
            content=self._manifest(Role.AGENT, published=True, elastic=elastic),
            content_type="application/json",
            # Where the groups could not be changed, it must not say that they were: the scheduler reckons with it.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[fleet, *may_launch]),
        )
        capacity = [self.on_demand_group, self.spot_group, self.scheduler_group]
        storage.BucketObject(
            f"{name}-declared",
            bucket=store.control_bucket,
            name="declared.json",
            content=pulumi.Output.all(*capacity).apply(build_declared),
            content_type="application/json",
            opts=child,
        )
        peers = add_federation(self, name, args, identity, store)
        more = {"schedulerId": identity.scheduler_unique_id, "projectNumber": preview_queries.read_project_number(self)}
        self.peer = card(name, CLOUD, store, self.scheduler_account, **more)
        watched = add_monitoring(self, name, args, identity.scheduler_account, identity.scheduler_unique_id)
        whole = [events, store, network, identity, fleet, *may_launch, *watched, *peers, scheduler]
        guard(self, f"{name}-guard", self.control_url, whole, on=guarded)
        warn_of_zones(self, args["capacity"], args["zones"])
        print_hourly_cost(self, args["capacity"], build_upkeep(name, args))
        self.register_outputs(outputs(self))

    @property
    def _heal_after(self) -> str:
        """The time before an instance's health is checked: until then its agent has to have reported."""
        stated = self._args.get("limits", {}).get("boot_deadline")
        limits = Limits() if stated is None else Limits(boot_deadline=parse_duration(stated))
        types = build_catalogue(self._args["capacity"], region="").types
        names = [choice.name for choice in parse_capacity(self._args["capacity"]).types]
        return format_duration(
            max(boot_deadline(limits, name, types[name].gpus if name in types else 0) for name in names)
        )

    def _own(self, role: Role) -> dict[str, Any]:
        """Return the inputs that the machines of a role take from the cluster's other parts."""
        return {"cluster": self._name, "machine": self._machine(role), "manifest": self._manifest(role)}

    def _machine(self, role: Role = Role.AGENT) -> GcpMachineArgs:
        identity = self._identity
        ready = identity.agent_account_ready if role is Role.AGENT else identity.scheduler_account_ready
        spec = {key: value for key, value in self._args.items() if key != "image_family"}  # which is resolved
        if role is Role.SCHEDULER:  # it keeps nothing on its disk: what the agents' disks have would only be paid
            spec = {key: value for key, value in spec.items() if key not in ("volume_gib", "volume_type")}
        subnetwork = self.subnetwork if role is Role.AGENT else self._outward
        own = {"image_id": self.image_id, "subnetwork": subnetwork, "service_account": ready}
        return inputs(GcpMachineArgs, spec, **own)

    def _elastic(self, opts: pulumi.ResourceOptions) -> GcpElasticCapacity:
        """Return the launch inputs of the scheduler."""
        identity = self._identity
        own = {
            **self._own(Role.AGENT),
            "scheduler_account": identity.scheduler_account,
            "scheduler_unique_id": identity.scheduler_unique_id,
            "agent_account": identity.agent_account,
        }
        return GcpElasticCapacity(f"{self._name}-elastic", inputs(GcpElasticCapacityArgs, self._args, **own), opts)

    def _scheduler(self, elastic: GcpElasticCapacity | None, opts: pulumi.ResourceOptions) -> GcpSchedulerService:
        own = {**self._own(Role.SCHEDULER), "instance_type": self._args.get("scheduler_type", DEFAULT_TYPE)}
        if elastic is not None:
            own["machine"]["service_account"] = elastic.launching(self._identity.scheduler_account_ready)
        return GcpSchedulerService(f"{self._name}-scheduler", inputs(GcpSchedulerServiceArgs, self._args, **own), opts)

    def _labels(self, resolved: Mapping[str, Any]) -> dict[str, str]:
        """Return the labels of launched instances: those of a request replace the template's."""
        labels = tagging.instance_labels(self._name, self._args["tags"], Role.AGENT.value, resolved["image"])
        return {**labels, STORE_LABEL: store_mark(resolved["control_url"])}

    def _manifest(
        self, role: Role, *, published: bool = False, elastic: GcpElasticCapacity | None = None
    ) -> pulumi.Output[str]:
        """Return the manifest of a role as JSON. `published`: as `cluster.json`, which alone contains the sizes of the
        groups and the launch settings."""
        facts: dict[str, pulumi.Output[Any]] = {
            "region": self.region,
            "account": self.project,
            "control_url": self.control_url,
            "data_url": self.data_url,
        }
        if self._args.get("job_role", True):
            facts["job_role"] = self._identity.job_role_name
        if published or role is Role.SCHEDULER:
            facts["queue_url"] = self.queue_url
        if elastic is not None:
            facts["template"], facts["version"] = elastic.template, elastic.template_id
            facts["places"], facts["image"] = elastic.places, self.image_id
        args, capacity = self._args, self._args["capacity"]
        shape = parse_capacity(capacity)
        names = [*unpriced_types(capacity["instance_types"]), args.get("scheduler_type", DEFAULT_TYPE)]
        return pulumi.Output.all(machine=launched_with(self._machine()), **facts).apply(
            lambda known: build_manifest(
                role,
                cloud=CLOUD,
                cluster=self._name,
                limits=args.get("limits", {}),
                types=declared_types(capacity["instance_types"]),
                machine=known["machine"],
                facts=known,
                notice=parse_notice(capacity),
                health_port=HEALTH_PORT,
                standing=build_standing(capacity, shape) if published else None,
                fleet=build_offer(capacity, shape, args["zones"]) if published else None,
                elastic=build_elastic(capacity, self._labels(known), known) if elastic is not None else None,
                notifications=build_notifications(args.get("notifications")) if published else None,
                scheduler_type=args.get("scheduler_type", DEFAULT_TYPE) if published else None,
                list_prices=declared_prices(CLOUD, known["region"], names) if published else None,
                shares=args.get("shares") if published else None,
                team=args["tags"].get("Team") if published else None,
                shared_instances=published and args.get("shared_instances", False),
                anomalies=build_thresholds(args.get("anomalies")) if published else None,
                monitoring=build_monitoring(args.get("monitoring")) if published else None,
                federation=build_peers(self._name, CLOUD, known["region"], args) if published else (),
                image_repositories=_allowed_repositories(args) if published else None,
                internet=args.get("nat", False) if published and "network" not in args else None,
                read_buckets=args.get("read_buckets") if args.get("job_role", True) else None,
                metrics=build_metrics(args.get("prometheus")) if role is Role.SCHEDULER else None,
            )
        )


def _allowed_repositories(args: GcpTrainingClusterArgs) -> list[str] | None:
    """Return the repositories as beginnings of their images' names."""
    repositories = args.get("image_repositories")
    return [f"{repository}/" for repository in repositories] if repositories is not None else None
