"""Permissions on Google Cloud: roles with conditions, evaluated like IAM does."""

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
from everspot import GcpTrainingCluster
from everspot.gcp import policies
from everspot_clouds.gcp.names import standing
from everspot_clouds.gcp.rules import instance_name
from everspot_core.capacity.market import Market
from gcp_helpers import SPEC

Declare = Callable[..., tuple[Any, dict[str, Any]]]
AGENT, SCHEDULER = (f"serviceAccount:train-{r}@everspot-local.iam.gserviceaccount.com" for r in ("agent", "scheduler"))
CONTROL, DATA = "train-store-control", "train-store-data"
SCOPES = ("bucket", "subscription", "topic", "serviceAccountId")
TOKEN = "0123456789abcdef" * 2


def evaluate(expression: str, name: str, kind: str) -> bool:
    """A condition's value for a resource: the three forms that policies use, and nothing else."""
    return any(_evaluate_term(term.strip(), name, kind) for term in expression.split("||"))


def _evaluate_term(term: str, name: str, kind: str) -> bool:
    if match := re.fullmatch(r'resource\.name\.startsWith\("([^"]+)"\)', term):
        return name.startswith(match[1])
    if match := re.fullmatch(r'resource\.name\.extract\("([^{"]+)\{name\}"\)\.startsWith\("([^"]+)"\)', term):
        return name.partition(match[1])[2].startswith(match[2])
    if match := re.fullmatch(r'resource\.(name|type) (==|!=) "([^"]+)"', term):
        return ((name if match[1] == "name" else kind) == match[3]) is (match[2] == "==")
    raise AssertionError(f"no form that is in use: {term}")


class Grants:
    """The permissions that a cluster's bindings grant."""

    def __init__(self, recorder: Any) -> None:
        roles = recorder.of_type("gcp:projects/iAMCustomRole:IAMCustomRole")
        self.roles = {f"projects/everspot-local/roles/{args.name}": args.inputs["permissions"] for args in roles}
        self.bindings = [args for args in recorder.resources if args.typ.lower().endswith("iammember")]

    def may(self, member: str, permission: str, resource: str, kind: str = "", scope: str = "") -> bool:
        """Return whether a member has a permission on a resource. `scope`: the bucket or other resource with the
        binding; empty for the project."""
        for args in self.bindings:
            binding = args.inputs
            where = next(
                (str(binding[k]) for k in ("bucket", "subscription", "topic", "serviceAccountId") if k in binding), ""
            )
            if binding["member"] != member or where != scope or permission not in self.roles.get(binding["role"], []):
                continue
            condition = binding.get("condition")
            if condition is None or evaluate(condition["expression"], resource, kind):
                return True
        return False

    def on_object(self, member: str, permission: str, bucket: str, key: str) -> bool:
        return self.may(member, permission, f"projects/_/buckets/{bucket}/objects/{key}", scope=bucket)


@pytest.fixture
def grants(declare: Declare) -> Grants:
    args: Any = copy.deepcopy(SPEC)
    args["capacity"]["elastic"] = {"max_instances": 4}
    return Grants(declare(lambda: {"url": GcpTrainingCluster("train", args).control_url})[0])


@pytest.mark.parametrize(
    ("member", "permission", "bucket", "key", "allowed"),
    [
        (AGENT, "storage.objects.get", CONTROL, "jobs/1.json", True),
        (AGENT, "storage.objects.create", CONTROL, "records/1.json", True),
        (AGENT, "storage.objects.create", CONTROL, "assignments/1.json", False),
        (AGENT, "storage.objects.delete", CONTROL, "jobs/1.json", False),
        (AGENT, "storage.objects.create", DATA, "jobs/1/part", True),
        (AGENT, "storage.multipartUploads.create", DATA, "jobs/1/part", True),
        (AGENT, "storage.objects.create", DATA, "code/x.tar", False),
        (AGENT, "storage.objects.get", DATA, "code/x.tar", True),
        (AGENT, "storage.objects.get", DATA, "agents/log", False),
        *((SCHEDULER, "storage.objects.create", CONTROL, f"{p}x", True) for p in policies.SCHEDULER_WRITES),
        (SCHEDULER, "storage.objects.create", CONTROL, "heads/1.json", False),
        (SCHEDULER, "storage.objects.create", CONTROL, "cluster.json", False),
        (SCHEDULER, "storage.objects.create", CONTROL, "told/1", False),
        (SCHEDULER, "storage.objects.get", DATA, "jobs/1/part", False),
        (SCHEDULER, "storage.objects.create", DATA, "jobs/1/part", False),
    ],
)
def test_each_writes_below_its_own_prefixes(
    grants: Grants, member: str, permission: str, bucket: str, key: str, allowed: bool
) -> None:
    assert grants.on_object(member, permission, bucket, key) is allowed


def test_agents_may_list_buckets_so_that_what_is_missing_is_missing(grants: Grants) -> None:
    for bucket in (CONTROL, DATA):
        assert grants.may(AGENT, "storage.objects.list", f"projects/_/buckets/{bucket}", scope=bucket)


def test_an_agent_ends_agents_and_a_scheduler_only_what_it_launched(grants: Grants) -> None:
    standing_one = f"{standing('train', Market.SPOT)}-x7k2"
    launched = instance_name("train", TOKEN, 0)

    def ends(member: str, machine: str) -> bool:
        name = f"projects/everspot-local/zones/europe-west4-a/instances/{machine}"
        return grants.may(member, "compute.instances.delete", name, policies.INSTANCE)

    assert ends(AGENT, standing_one) and ends(AGENT, launched)
    assert ends(SCHEDULER, launched) and not ends(SCHEDULER, standing_one)
    for member in (AGENT, SCHEDULER):
        assert not ends(member, "train-scheduler-0001")
        assert not ends(member, instance_name("other", TOKEN, 0))


def test_a_scheduler_launches_with_the_agents_account_alone(grants: Grants) -> None:
    disk = "projects/everspot-local/zones/europe-west4-a/disks/train-e-1"
    assert grants.may(SCHEDULER, "compute.disks.create", disk, "compute.googleapis.com/Disk")
    accounts = "projects/everspot-local/serviceAccounts"
    agent = f"{accounts}/{AGENT.partition(':')[2]}"
    assert grants.may(SCHEDULER, "iam.serviceAccounts.actAs", agent, scope=agent)
    assert [args.inputs["serviceAccountId"] for args in grants.bindings if "serviceAccountId" in args.inputs] == [agent]
    assert not grants.may(AGENT, "compute.instances.create", disk)


def test_without_elastic_capacity_nobody_may_launch(declare: Declare) -> None:
    recorder, _ = declare(lambda: {"url": GcpTrainingCluster("train", copy.deepcopy(SPEC)).control_url})
    allowed = {permission for permissions in Grants(recorder).roles.values() for permission in permissions}
    assert not {"compute.instances.create", "iam.serviceAccounts.actAs"} & allowed
    assert allowed == {*policies.READ, *policies.WRITE, *policies.LEAVE, *policies.WATCH, *policies.LISTEN}


def test_no_binding_is_of_a_basic_role_and_no_condition_is_too_long(grants: Grants) -> None:
    own = {args.inputs["role"] for args in grants.bindings} - set(grants.roles)
    # Of the sink on its topic, and of Pub/Sub's agent on the dead-letter topic and the subscription that feeds it.
    assert own == {"roles/pubsub.publisher", "roles/pubsub.subscriber"}
    (taker,) = (args for args in grants.bindings if args.inputs["role"] == "roles/pubsub.subscriber")
    assert taker.inputs["member"].endswith("@gcp-sa-pubsub.iam.gserviceaccount.com") and "subscription" in taker.inputs
    conditions = [args.inputs["condition"]["expression"] for args in grants.bindings if "condition" in args.inputs]
    assert len(conditions) == 7
    assert all(expression.count("||") <= 12 for expression in conditions)


def test_what_a_new_scheduler_asks_for_is_known_before_it_boots(declare: Declare, waits: dict[str, set[str]]) -> None:
    args: Any = copy.deepcopy(SPEC)
    args["capacity"]["elastic"] = {"max_instances": 4}
    declare(lambda: {"url": GcpTrainingCluster("train", args).control_url})
    needed = {"train-elastic-launch", "train-elastic-act", "train-identity-scheduler-watch"}
    assert needed <= waits["train-scheduler-template"]
    assert "train-identity-agent-leave" in waits["train-fleet-spot-agent"]
    assert {"train-network-in-health", "train-network-out-https"} <= waits["train-fleet-spot"]
    # In a new project Pub/Sub has no account of its own before it is used.
    assert "train-events-subscription" in waits["train-events-dead-publisher"] & waits["train-events-dead-taker"]
