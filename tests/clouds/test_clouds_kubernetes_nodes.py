"""Nodes: what a pod is billed for, what EC2 says of the machines, and what `everspot cluster down` finds and ends.

The API server and EC2's calls are real; Karpenter's NodeClaims are written as it writes them."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from everspot.kubernetes.documents import ObjectPlace, build_config_map
from everspot_clouds.aws.cloud import AwsCloud
from everspot_clouds.base import CloudError, CloudInstance, Phase, Verdict
from everspot_clouds.kubernetes.client import KubernetesClient
from everspot_clouds.kubernetes.cloud import KubernetesCloud
from everspot_clouds.kubernetes.declared_store import store_checks
from everspot_clouds.kubernetes.instances import owned_by_namespace
from everspot_clouds.kubernetes.rules import RELEASED_NOTE
from everspot_clouds.kubernetes.site import NODE, KubernetesSite
from everspot_core.capacity.launching import store_mark
from everspot_core.capacity.market import Market
from everspot_core.cluster.manifest import Manifest
from everspot_core.jobs.records import Role
from everspot_local.cloud import LocalCloud
from everspot_local.market.delays import Delays
from everspot_local.options import Options
from everspot_store import SystemClock
from kubernetes_place import MISSING, PROGRAM, TYPE, ZONE, Place, eventually
from test_clouds_kubernetes import described, ended, intent, is_running, launched, manifest, settle

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=MISSING)


@pytest.fixture(scope="module")
def ec2_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    folder = tmp_path_factory.mktemp("aws")
    with LocalCloud(Options(folder, boot_command=None, delays=Delays(propagation=timedelta()))) as cloud:
        yield cloud


@pytest.fixture
def ec2(ec2_cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of an empty account."""
    ec2_cloud.reset()
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
    for name, value in {"AWS_ENDPOINT_URL": ec2_cloud.endpoint, **keys}.items():
        monkeypatch.setenv(name, value)
    return boto3.client("ec2")


@pytest.fixture
def declared() -> Manifest:
    return manifest(region="us-east-1")


@pytest.fixture
def cloud(place: Place, ec2: Any, declared: Manifest) -> Iterator[KubernetesCloud]:
    clock, is_own = SystemClock(), owned_by_namespace(declared.control_url)
    machines = AwsCloud.open(declared, clock, reads=True, is_own=is_own)
    cloud = KubernetesCloud(place.client(), declared, machines, clock, reads=False)
    yield cloud
    cloud.close()


def start_machine(ec2: Any, cluster: str = "fleet", *, store: str = "memory://") -> str:
    """Launch a machine as Karpenter does, with the tags of its EC2NodeClass. `store`: empty for one of an earlier
    release."""
    values = {"everspot:cluster": cluster, "everspot:role": "agent", "karpenter.sh/nodepool": f"{cluster}-spot"}
    values |= {"everspot:store": store_mark(store)} if store else {}
    tags = [{"Key": key, "Value": value} for key, value in values.items()]
    (instance,) = ec2.run_instances(
        ImageId="ami-12c6146b", InstanceType=TYPE, MinCount=1, MaxCount=1, Placement={"AvailabilityZone": ZONE},
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )["Instances"]  # fmt: skip
    return str(instance["InstanceId"])


def claim(place: Place, machine: str) -> str:
    """Write the NodeClaim of a machine, with Karpenter's finalizer, which it removes once the machine has ended."""
    name = f"claim-{place.name}"
    metadata = {"name": name, "finalizers": ["karpenter.sh/termination"]}
    place.apply({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": metadata})
    place.api.patch(f"/apis/karpenter.sh/v1/nodeclaims/{name}", {"status": {"providerID": f"aws:///{ZONE}/{machine}"}})
    return name


def request_cpu(place: Place, cpu: str) -> None:
    resources = {"requests": {"cpu": cpu, "memory": "1Gi"}}
    containers = [{"name": "agent", "image": "none", "command": ["sleep", "1000"], "resources": resources}]
    template = f"/api/v1/namespaces/{place.name}/podtemplates/train-1"
    place.api.patch(template, {"template": {"spec": {"containers": containers}}})


def test_a_pod_on_its_clusters_node_names_the_machine_that_ec2_describes(
    place: Place, cloud: KubernetesCloud, ec2: Any
) -> None:
    machine, stranger = start_machine(ec2), start_machine(ec2, "other")
    place.node("on-demand", machine=machine, **{"everspot/cluster": "fleet"})
    request_cpu(place, "500m")
    (answer,) = settle(cloud, intent(market=Market.ON_DEMAND)).instances
    name = answer.instance_id
    assert (answer.node, answer.node_share) == (machine, 1.0)
    assert eventually(lambda: described(cloud, machine) is not None)
    instances = {instance.instance_id: instance for instance in cloud.instances()}
    assert set(instances) == {name, machine} and stranger not in instances
    assert (instances[name].node, instances[name].node_share, instances[name].role) == (machine, 1.0, Role.AGENT)
    node = instances[machine]
    assert (node.role, node.market, node.instance_type, node.zone) == (Role.NODE, Market.ON_DEMAND, TYPE, ZONE)
    assert (node.launch, node.node, node.phase) == ("", "", Phase.ALIVE)
    ec2.terminate_instances(InstanceIds=[machine])

    def end() -> CloudInstance | None:
        instance = described(cloud, machine)
        return instance if instance is not None and instance.phase is Phase.ENDED else None

    end_of_node = eventually(end)
    assert end_of_node is not None and end_of_node.ended_at is not None and end_of_node.interrupted is False


def test_a_pod_on_a_node_of_others_has_its_share_after_the_node_is_gone_too(
    place: Place, cloud: KubernetesCloud
) -> None:
    node = place.node(machine="i-0123")
    request_cpu(place, "1")
    name = launched(cloud)
    instance = described(cloud, name)
    assert instance is not None and instance.node == "i-0123"
    # 1 of 2 vCPU, and 1 of 4 GiB: (0.9 + 0.1) / (1.8 + 0.4).
    assert instance.node_share == pytest.approx(1 / 2.2, rel=1e-5)
    place.lose(node)
    successor = KubernetesCloud(place.client(), manifest(), cloud._machines, SystemClock(), reads=True)
    later = described(successor, name)
    assert later is not None and (later.node, later.node_share) == (instance.node, instance.node_share)


def test_a_pod_costs_money_from_when_it_is_bound_to_a_node(place: Place, cloud: KubernetesCloud) -> None:
    launch = intent()
    with pytest.raises(Exception, match="no node yet"):
        cloud.launch(launch)
    (pod,) = place.pods().values()
    place.node()
    name = launched(cloud, launch)
    instance = described(cloud, name)
    assert instance is not None
    (bound,) = (c for c in place.pods()[name]["status"]["conditions"] if c["type"] == "PodScheduled")
    assert instance.launched_at == datetime.fromisoformat(bound["lastTransitionTime"])
    assert instance.launched_at >= datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
    assert abs(instance.launched_at - datetime.now(UTC)) < timedelta(minutes=5)


def test_down_finds_pods_and_nodes_and_ends_them_through_karpenter(
    place: Place, cloud: KubernetesCloud, ec2: Any, declared: Manifest
) -> None:
    machine = start_machine(ec2)
    place.node("on-demand", machine=machine, **{"everspot/cluster": "fleet"})
    place.template("sh", "-c", "trap 'exit 0' TERM; while true; do sleep 0.1; done")
    name = launched(cloud, intent(market=Market.ON_DEMAND))
    eventually(lambda: is_running(place, name))
    claim_name, site = claim(place, machine), KubernetesSite(declared, place.client())
    assert eventually(lambda: any(part.name == machine for part in site.remaining()))
    parts = {part.name: part for part in site.remaining()}
    assert {(part.kind, part.launched, part.ending) for part in parts.values()} >= {
        ("instance", True, False), (NODE, True, False),
    }  # fmt: skip
    assert (parts[name].kind, parts[machine].kind) == ("instance", NODE)
    assert site.removal(parts[name]) == f"kubectl -n {place.name} delete pod {name}"
    assert site.removal(parts[machine]).startswith("aws ec2 terminate-instances")
    site.end([name, machine, "unknown"])
    assert RELEASED_NOTE in place.pods()[name]["metadata"]["annotations"]
    assert "deletionTimestamp" in place.api.get(f"/apis/karpenter.sh/v1/nodeclaims/{claim_name}")["metadata"]
    assert ec2.describe_instances(InstanceIds=[machine])["Reservations"][0]["Instances"][0]["State"]["Name"] in (
        "pending", "running",
    )  # fmt: skip
    eventually(lambda: place.pods()[name]["status"]["phase"] in ("Succeeded", "Failed"))
    assert not {part.name: part for part in site.remaining()}[name].ending  # the finalizer still keeps it
    assert ended(cloud, name).interrupted is False  # as the scheduler records it
    site.end([name])
    assert eventually(lambda: name not in place.pods())
    place.api.patch(f"/apis/karpenter.sh/v1/nodeclaims/{claim_name}", {"metadata": {"finalizers": None}})


def test_down_ends_a_machine_that_karpenter_has_forgotten_by_ec2(place: Place, ec2: Any, declared: Manifest) -> None:
    machine, site = start_machine(ec2), KubernetesSite(declared, place.client())
    assert eventually(lambda: [part.kind for part in site.remaining() if part.capacity]) == [NODE]
    site.end([machine])
    assert eventually(lambda: not [part for part in site.remaining() if part.capacity and not part.ending])


def test_nodes_of_a_cluster_of_the_same_name_in_another_kubernetes_cluster_are_not_touched(
    place: Place, cloud: KubernetesCloud, ec2: Any, declared: Manifest
) -> None:
    """They are in the same account and region. An unmarked one is of an earlier release, and may be of either."""
    theirs, own = start_machine(ec2, store="s3://another"), start_machine(ec2)
    claimed, doubtful = start_machine(ec2, store=""), start_machine(ec2, store="")
    claim_name, site = claim(place, claimed), KubernetesSite(declared, place.client())
    assert eventually(lambda: {i.instance_id for i in cloud.instances()} >= {own, claimed, doubtful})
    assert theirs not in {instance.instance_id for instance in cloud.instances()}
    nodes = {part.name: (part.launched, part.unmarked) for part in site.remaining() if part.kind == NODE}
    assert nodes == {own: (True, False), claimed: (True, False), doubtful: (False, True)}
    assert theirs not in {part.name for part in site.list_unbilled()}
    place.api.delete(f"/apis/karpenter.sh/v1/nodeclaims/{claim_name}")
    place.api.patch(f"/apis/karpenter.sh/v1/nodeclaims/{claim_name}", {"metadata": {"finalizers": None}})


def test_a_cluster_of_the_same_name_in_another_kubernetes_cluster_is_not_touched(
    place: Place, cloud: KubernetesCloud, ec2: Any, declared: Manifest
) -> None:
    """As `everspot cluster down` reaches by the current context of a kubeconfig."""
    place.node()
    name = launched(cloud)
    down = declared.model_copy(update={"control_url": "s3://another?region=us-east-1"})
    site = KubernetesSite(down, place.client())
    assert site.remaining() == []
    site.end([name])
    objects = ObjectPlace("fleet", place.name, "us-east-1")
    own = declared.model_copy(update={"control_url": f"{declared.control_url}?region=us-east-1"})
    place.apply(build_config_map(objects, own.to_json().decode()))
    for call in (site.remaining, lambda: site.end([name])):
        with pytest.raises(CloudError, match="is of the cluster with the store memory://") as refused:
            call()
        assert "kubectl config use-context" in refused.value.fix
    assert [check.verdict for check in store_checks(place.client(), down)] == [Verdict.FAIL]
    assert store_checks(place.client(), declared) == []
    assert store_checks(KubernetesClient.open(), down) == []  # a service account without the right to read it
    after = place.pods()[name]["metadata"]
    assert "deletionTimestamp" not in after and RELEASED_NOTE not in after.get("annotations", {})
    assert [part.name for part in KubernetesSite(declared, place.client()).remaining()] == [name]
