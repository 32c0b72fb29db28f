"""Elastic capacity: the instance template and the scheduler's permissions to launch instances for jobs.

The instances belong to no group: one bulk request creates them, and nothing replaces them. Their template differs from
the standing groups' in two points: an agent that has had no job for the cluster's idle limit and its orphan limit
together ends its instance, and Compute Engine ends it after `max_run`. Usually the scheduler ends an idle instance much
earlier; these limits are for the time when no scheduler runs. The template is that of a standard machine; a request for
Spot sets that itself (Compute API, BulkInsertInstanceResource, instanceProperties beside sourceInstanceTemplate).
"""

from collections.abc import Sequence
from typing import NotRequired, TypedDict

import pulumi
from everspot_clouds.gcp.gpus import FAMILIES
from everspot_clouds.gcp.rules import name_prefix
from everspot_core.jobs.records import Role
from everspot_core.validation.problems import Problems

from everspot import common
from everspot.capacity import check_gpus, registered
from everspot.gcp import policies, preview_queries, tagging
from everspot.gcp.capacity import GcpCapacityArgs, check_capacity, has_gpus, parse_max_run, type_names
from everspot.gcp.granting import Granting
from everspot.gcp.launch import GcpMachineArgs, check_machine, instance_template, resolve_image
from everspot.gcp.network import check_resource_name
from everspot.limits import IDLE_LIMIT
from everspot.manifest import with_idle_limit
from everspot.parts import outputs


class GcpElasticCapacityArgs(TypedDict):
    """Inputs of `GcpElasticCapacity`."""

    cluster: str
    """Name of the cluster. The scheduler finds instances by it as a label."""
    tags: dict[str, str]
    """Tags of instances and disks, as labels. Project, Team and Environment are mandatory."""
    capacity: GcpCapacityArgs
    """Instance types, and limits of what may be launched of them. `elastic` has to be given."""
    machine: GcpMachineArgs
    """Image, disk and place in the network of the instances: the same as the standing groups'."""
    zones: list[str]
    """Zones in which instances may be launched, by name, all of one region."""
    gpu_arches: NotRequired[list[str]]
    """Architectures for which the image's torch has code, as `torch.cuda.get_arch_list()` returns them. Default: those
    of Everspot's image."""
    manifest: pulumi.Input[str]
    """The agents' manifest, JSON. The instances' manifest is the same with an idle limit added."""
    scheduler_account: pulumi.Input[str]
    """Email of the scheduler's service account, which gets the permission to launch and to end these instances."""
    scheduler_unique_id: pulumi.Input[str]
    """Unique id of the scheduler's service account, a number."""
    agent_account: pulumi.Input[str]
    """Email of the agents' service account, which the instances get."""


class GcpElasticCapacity(pulumi.ComponentResource):
    """An instance template from which the scheduler launches instances for jobs, and its permissions to do so."""

    template: pulumi.Output[str]
    """The instance template, projects/PROJECT/regions/REGION/instanceTemplates/NAME."""
    template_id: pulumi.Output[str]
    """Its numeric id."""
    places: pulumi.Output[dict[str, str]]
    """The subnetwork in each zone in which instances may be launched, by the zone's name."""

    def __init__(self, name: str, args: GcpElasticCapacityArgs, opts: pulumi.ResourceOptions | None = None):
        super().__init__(common.token("GcpElasticCapacity"), name, registered(args, leaving="standing"), opts)
        check_elastic(name, args)
        self._name, self._args = name, args
        self._place = preview_queries.read_place(self)
        elastic, types = args["capacity"]["elastic"], args["capacity"]["instance_types"]
        template = instance_template(
            self,
            f"{name}-template",
            role=Role.AGENT,
            cluster=args["cluster"],
            tags=args["tags"],
            region=self._place.apply(lambda place: place["region"]),
            machine=args["machine"],
            image=resolve_image(self, args["machine"]),
            manifest=pulumi.Output.from_input(args["manifest"]).apply(
                lambda text: with_idle_limit(text, elastic.get("idle_limit", IDLE_LIMIT))
            ),
            instance_type=types[0]["type"],
            gpus=has_gpus(args["capacity"]),
            max_run=parse_max_run(elastic),
        )
        self._granted = self._permissions()
        self.template = template.id
        self.template_id = template.numeric_id
        zones = elastic.get("zones", args["zones"])
        self.places = pulumi.Output.from_input(args["machine"]["subnetwork"]).apply(
            lambda subnetwork: dict.fromkeys(zones, subnetwork)
        )
        self.register_outputs(outputs(self))

    def launching(self, account: pulumi.Output[str]) -> pulumi.Output[str]:
        """Return the scheduler's service account, known once it may launch: a scheduler that boots before would be
        refused."""
        return pulumi.Output.all(account, *[binding.urn for binding in self._granted]).apply(lambda all_: str(all_[0]))

    def _permissions(self) -> Sequence[pulumi.Resource]:
        """Return the part of the scheduler's permissions that only a cluster with elastic capacity has."""
        args, project = self._args, self._place.apply(lambda place: place["project"])
        may = Granting(self, self._name, args["cluster"], args["scheduler_account"], args["scheduler_unique_id"])
        launch = may.role("launcher", policies.LAUNCH, "Launch instances for jobs, and end them")
        may.on_project("launch", project, launch, policies.match_machines([name_prefix(args["cluster"])]))
        act = may.role("actor", policies.ACT_AS, "Launch instances with the agents' service account")
        account = pulumi.Output.all(project, args["agent_account"]).apply(
            lambda known: f"projects/{known[0]}/serviceAccounts/{known[1]}"
        )
        may.on_account("act", account, act)
        return may.bindings


def check_elastic(name: str, args: GcpElasticCapacityArgs) -> None:
    """Refuse inputs with all of their problems.

    Raises:
        pulumi.InputPropertiesError: if anything is wrong; it carries each problem with the input's path.
    """
    problems = Problems()
    tagging.check_common(problems, args["cluster"], args["tags"])
    check_resource_name(problems, name, "-template", "instance template")
    check_capacity(problems.at("capacity"), args["capacity"], args["zones"])
    problems.need("elastic" in args["capacity"], "capacity.elastic", "is missing")
    check_gpus(problems, args["capacity"], args.get("gpu_arches"), FAMILIES)
    problems.need(bool(args["zones"]), "zones", "at least one zone is needed")
    check_machine(problems.at("machine"), args["machine"], type_names(args["capacity"]))
    common.raise_bad(problems, f"GcpElasticCapacity {name}")
