"""A whole training cluster from one typed, validated spec."""

import operator
from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_aws as aws
from everspot_clouds.aws.hourly import Always
from everspot_clouds.aws.rules import CLUSTER_TAG, STORE_TAG
from everspot_core.capacity.launching import store_mark
from everspot_core.jobs.records import Role

from everspot import common
from everspot.anomalies import build_thresholds
from everspot.aws import preview_queries, tagging
from everspot.aws.args import AwsTrainingClusterArgs
from everspot.aws.capacity import parse_capacity
from everspot.aws.checking import check_cluster, check_region
from everspot.aws.elastic import AwsElasticCapacity, AwsElasticCapacityArgs
from everspot.aws.events import AwsInterruptionEvents
from everspot.aws.federation import add_federation
from everspot.aws.fleet import AwsTrainingFleet, AwsTrainingFleetArgs
from everspot.aws.identity import AwsIdentity, AwsIdentityArgs
from everspot.aws.launch import AwsMachineArgs, launched_with, resolve_image
from everspot.aws.monitoring import add_monitoring, build_monitoring
from everspot.aws.network import CUT_OFF, AwsNetwork, has_nat, needed_services, network_place
from everspot.aws.notifications import build_notifications
from everspot.aws.offers import print_hourly_cost
from everspot.aws.parts import CLOUD, build_proxy, network_args, store_args
from everspot.aws.quotas import warn_of_quotas
from everspot.aws.scheduler import DEFAULT_TYPE, AwsSchedulerService, AwsSchedulerServiceArgs
from everspot.aws.scraping import AwsPrometheusArgs, scraped_group
from everspot.aws.store import AwsStore
from everspot.aws.unique_name import check_unique_name
from everspot.capacity import build_elastic, build_offer, build_standing
from everspot.custom_types import declared_types
from everspot.federation import build_peers, card
from everspot.guard import JOB_ROLE, guard, place_guard
from everspot.manifest import build_declared, build_manifest
from everspot.marking import StoreMarking
from everspot.parts import inputs, outputs
from everspot.pricing import declared_prices, unpriced_types
from everspot.scraping import build_metrics


class AwsTrainingCluster(pulumi.ComponentResource):
    """A whole training cluster: network, store, roles, standing fleets, interruption events and scheduler. The
    component's name is the cluster's name."""

    cluster: pulumi.Output[str]
    """Name of the cluster."""
    control_url: pulumi.Output[str]
    """URL of the control bucket: what the CLI needs to find the cluster."""
    data_url: pulumi.Output[str]
    """URL of the data bucket."""
    queue_url: pulumi.Output[str]
    """URL of the queue of interruption events; empty without one."""
    on_demand_fleet_id: pulumi.Output[str]
    """Id of the on-demand EC2 Fleet."""
    spot_fleet_id: pulumi.Output[str]
    """Id of the Spot EC2 Fleet."""
    launch_template_id: pulumi.Output[str]
    """Id of the launch template of the standing fleets' agents."""
    image_id: pulumi.Output[str]
    """Id of the image in use."""
    scheduler_group: pulumi.Output[str]
    """Name of the scheduler's Auto Scaling group."""
    agent_role_arn: pulumi.Output[str]
    """ARN of the agents' role."""
    job_role_arn: pulumi.Output[str]
    """ARN of the jobs' role; empty with `jobRole: false`."""
    scheduler_role_arn: pulumi.Output[str]
    """ARN of the scheduler's role."""
    vpc_id: pulumi.Output[str]
    """Id of the VPC."""
    subnet_ids: pulumi.Output[list[str]]
    """Ids of the instances' subnets."""
    security_group_id: pulumi.Output[str]
    """Security group of the instances."""
    region: pulumi.Output[str]
    """Region of the cluster."""
    peer: pulumi.Output[dict[str, str]]
    """This cluster as an entry of another one's `federation`."""

    def __init__(self, name: str, args: AwsTrainingClusterArgs, opts: pulumi.ResourceOptions | None = None):
        marking = StoreMarking(CLUSTER_TAG, STORE_TAG)
        marked = pulumi.ResourceOptions(transformations=[marking])
        super().__init__(common.token("AwsTrainingCluster"), name, {}, pulumi.ResourceOptions.merge(opts, marked))
        check_cluster(name, args, zones_of=lambda: preview_queries.zones_now(self))
        self._name, self._args = name, args
        child = pulumi.ResourceOptions(parent=self)
        self.cluster = pulumi.Output.from_input(name)
        self.region = preview_queries.read_region(self).apply(lambda region: check_region(name, args, region))
        self.image_id = resolve_image(self, args.get("image_id"), args.get("image_parameter"))
        store = AwsStore(f"{name}-store", store_args(name, args), child)
        self.control_url, self.data_url = store.control_url, store.data_url
        marking.begin(self.control_url)
        check_unique_name(self, name, self.control_url)
        # The queue early: the provider waits half a minute for it, and the scheduler depends on it.
        events = []
        if args.get("interruption_events", True):
            events = [AwsInterruptionEvents(f"{name}-events", {"cluster": name, "tags": args["tags"]}, child)]
        self.queue_url = events[0].queue_url if events else pulumi.Output.from_input("")
        spec, guarded = network_args(name, args, [store.control_arn, store.data_arn]), args.get("guard_jobs", True)
        # Before network and roles: a change that cuts instances or jobs off is refused before anything is changed.
        settings = {**network_place(spec), JOB_ROLE: args.get("job_role", True)}
        place = place_guard(self, f"{name}-place", store.control_url, settings, on=guarded, move=CUT_OFF)
        placed = pulumi.ResourceOptions(parent=self, depends_on=place)
        network = AwsNetwork(f"{name}-network", spec, placed)
        self.vpc_id, self.subnet_ids = network.vpc_id, network.subnet_ids
        self.security_group_id = network.security_group_id
        arns = {"control_arn": store.control_arn, "data_arn": store.data_arn}
        arns |= {"queue_arn": events[0].queue_arn} if events else {}
        # The buckets first: they refuse a change of their key that would make objects unreadable for the roles.
        stored = pulumi.ResourceOptions(parent=self, depends_on=[store, *place])
        identity = AwsIdentity(f"{name}-identity", inputs(AwsIdentityArgs, args, cluster=name, **arns), stored)
        self.agent_role_arn, self.scheduler_role_arn = identity.agent_role_arn, identity.scheduler_role_arn
        self.job_role_arn = identity.job_role_arn
        # An instance without its endpoints reaches nothing.
        reachable = pulumi.ResourceOptions(parent=self, depends_on=[network])
        own = self._own(Role.AGENT, identity, network)
        fleet = AwsTrainingFleet(f"{name}-fleet", inputs(AwsTrainingFleetArgs, args, **own), reachable)
        self.on_demand_fleet_id, self.spot_fleet_id = fleet.on_demand_fleet_id, fleet.spot_fleet_id
        self.launch_template_id = fleet.launch_template_id
        elastic = self._elastic(identity, network, fleet, reachable) if "elastic" in args["capacity"] else None
        kind = args.get("scheduler_type", DEFAULT_TYPE)
        own = {**self._own(Role.SCHEDULER, identity, network), "instance_type": kind}
        may_launch = [] if elastic is None else [elastic]
        scraped = [self._scraped(args["prometheus"])] if "prometheus" in args else []
        own["machine"]["security_group_ids"] = [self.security_group_id, *network.outside, *scraped]
        if elastic is not None:
            own["machine"]["instance_profile_arn"] = elastic.launching(identity.scheduler_profile_arn)
        scheduler = AwsSchedulerService(f"{name}-scheduler", inputs(AwsSchedulerServiceArgs, args, **own), reachable)
        self.scheduler_group = scheduler.group_name
        aws.s3.BucketObjectv2(
            f"{name}-manifest",
            bucket=store.control_bucket,
            key="cluster.json",
            content=self._manifest(Role.AGENT, identity, published=True, elastic=elastic),
            content_type="application/json",
            # If the fleets could not be changed, `cluster.json` must not say so: the scheduler ends instances by it.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[fleet, *may_launch]),
        )
        capacity = [self.on_demand_fleet_id, self.spot_fleet_id, self.scheduler_group]
        aws.s3.BucketObjectv2(
            f"{name}-declared",
            bucket=store.control_bucket,
            key="declared.json",
            content=pulumi.Output.all(*capacity).apply(build_declared),
            content_type="application/json",
            opts=child,
        )
        peers = add_federation(self, name, args, identity, store)
        self.peer = card(name, CLOUD, store, self.scheduler_role_arn)
        watched = add_monitoring(self, name, args, identity.scheduler_role_arn)
        whole = [*events, store, network, identity, fleet, *may_launch, *watched, *peers, scheduler]
        guard(self, f"{name}-guard", self.control_url, whole, on=guarded)
        always = Always(
            scheduler_type=kind,
            services=needed_services(network_args(name, args)),
            zones=len(args.get("zones", [])),
            monitoring="monitoring" in args,
            nat=has_nat(network_args(name, args)),
        )
        print_hourly_cost(self, args["capacity"], always)
        warn_of_quotas(self, args["capacity"], self.region)
        self.register_outputs(outputs(self))

    def _own(self, role: Role, identity: AwsIdentity, network: AwsNetwork) -> dict[str, Any]:
        """Return the inputs that the machines of a role take from the cluster's other parts."""
        return {
            "cluster": self._name,
            "machine": self._machine(identity, role),
            "subnet_ids": list(network.subnets),
            "manifest": self._manifest(role, identity),
        }

    def _machine(self, identity: AwsIdentity, role: Role = Role.AGENT) -> AwsMachineArgs:
        spec = {key: value for key, value in self._args.items() if key != "image_parameter"}  # resolved to `image_id`
        if role is Role.SCHEDULER:  # it keeps nothing on its disk, so a volume like the agents' would only cost money
            spec = {key: value for key, value in spec.items() if not key.startswith("volume_")}
        profile = identity.agent_profile_arn if role is Role.AGENT else identity.scheduler_profile_arn
        own = {"security_group_ids": [self.security_group_id], "instance_profile_arn": profile}
        return inputs(AwsMachineArgs, {**spec, "image_id": self.image_id, **own})

    def _elastic(
        self, identity: AwsIdentity, network: AwsNetwork, fleet: AwsTrainingFleet, opts: pulumi.ResourceOptions
    ) -> AwsElasticCapacity:
        """Return the launch inputs of the scheduler. The zones come from the fleets, which have looked up the offers of
        EC2."""
        own = {
            **self._own(Role.AGENT, identity, network),
            "zones": [fleet.zones.apply(operator.itemgetter(index)) for index in range(len(network.subnets))],
            "scheduler_role_arn": identity.scheduler_role_arn,
            "agent_role_arn": identity.agent_role_arn,
        }
        return AwsElasticCapacity(f"{self._name}-elastic", inputs(AwsElasticCapacityArgs, self._args, **own), opts)

    def _scraped(self, prometheus: AwsPrometheusArgs) -> pulumi.Output[str]:
        tags = self._args["tags"]
        return scraped_group(
            self, f"{self._name}-metrics", cluster=self._name, tags=tags, vpc_id=self.vpc_id, args=prometheus
        )

    def _launched_tags(self, facts: Mapping[str, Any]) -> dict[str, str]:
        """Return the tags of launched instances, which are those of the template."""
        tags = tagging.instance_tags(self._name, self._args["tags"], Role.AGENT.value)
        return {**tags, STORE_TAG: store_mark(facts["control_url"])}

    def _manifest(
        self,
        role: Role,
        identity: AwsIdentity,
        *,
        published: bool = False,
        elastic: AwsElasticCapacity | None = None,
    ) -> pulumi.Output[str]:
        """Return the manifest of a role as JSON. `published`: as `cluster.json`, which alone contains the sizes of the
        fleets and the launch settings."""
        facts: dict[str, pulumi.Output[Any]] = {
            "region": self.region,
            "control_url": self.control_url,
            "data_url": self.data_url,
        }
        if self._args.get("job_role", True):
            facts["job_role"] = identity.job_role_arn
        if self._args.get("interruption_events", True) and (published or role is Role.SCHEDULER):
            facts["queue_url"] = self.queue_url
        if elastic is not None:
            facts["template"] = elastic.launch_template_id
            facts["version"] = elastic.launch_template_version.apply(str)
            facts["places"] = elastic.places
        limits, capacity = self._args.get("limits", {}), self._args["capacity"]
        shape = parse_capacity(capacity)
        names = [
            *unpriced_types(capacity["instance_types"]),
            self._args.get("scheduler_type", DEFAULT_TYPE),
        ]
        return pulumi.Output.all(machine=launched_with(self._machine(identity)), **facts).apply(
            lambda known: build_manifest(
                role,
                cloud=CLOUD,
                cluster=self._name,
                limits=limits,
                types=declared_types(capacity["instance_types"]),
                machine=known["machine"],
                facts=known,
                standing=build_standing(capacity, shape) if published else None,
                fleet=build_offer(capacity, shape, self._args.get("zones", [])) if published else None,
                elastic=build_elastic(capacity, self._launched_tags(known), known) if elastic is not None else None,
                notifications=build_notifications(self._args.get("notifications")) if published else None,
                scheduler_type=self._args.get("scheduler_type", DEFAULT_TYPE) if published else None,
                list_prices=declared_prices(CLOUD, known["region"], names) if published else None,
                shares=self._args.get("shares") if published else None,
                team=self._args["tags"].get("Team") if published else None,
                shared_instances=published and self._args.get("shared_instances", False),
                anomalies=build_thresholds(self._args.get("anomalies")) if published else None,
                monitoring=build_monitoring(self._args.get("monitoring")) if published else None,
                metrics=build_metrics(self._args.get("prometheus")) if role is Role.SCHEDULER else None,
                federation=build_peers(self._name, CLOUD, known["region"], self._args) if published else (),
                image_repositories=self._args.get("image_repositories") if published else None,
                internet=self._args.get("nat", False) if published and "vpc_id" not in self._args else None,
                further_buckets=bool(self._args.get("read_bucket_arns")),
                proxy=build_proxy(self._args.get("egress", {}), known["region"]),
            )
        )
