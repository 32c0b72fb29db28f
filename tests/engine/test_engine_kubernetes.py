"""The real engine declares a cluster inside a real Kubernetes control plane, its buckets and roles in the local AWS."""

import json
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import engine_killed
import pytest
import yaml
from conftest import Rig, copied, running
from everspot_core.cluster.manifest import Manifest
from everspot_core.jobs.records import JobRecord, JobState
from everspot_local.kubernetes.control_plane import ControlPlane
from everspot_store import Store
from pulumi import automation

from tests.cli.conftest import everspot

pytestmark = pytest.mark.engine
TOOLCHAIN = Path(__file__).resolve().parents[2] / ".everspot/toolchain"
PROGRAM, PLUGIN = TOOLCHAIN / "kubernetes/control-plane", TOOLCHAIN / "plugins/pulumi-resource-kubernetes"
DEFINITIONS = sorted((PROGRAM.parent / "definitions").glob("*.yaml"))
STACK, NAME = "kubernetes-dev", "everspot-kubernetes-dev"
DEPLOYMENT = "kubernetes:apps/v1:Deployment"
# This control plane has no node on which the scheduler could become ready.
EXCLUDED = (f"--exclude=**{DEPLOYMENT}::{NAME}-scheduler", "--exclude-dependents")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    if not (PROGRAM.exists() and DEFINITIONS and PLUGIN.exists()):
        pytest.skip("no control plane or plugin: make setup WITH='kubernetes provider-kubernetes' builds both")
    with ControlPlane(PROGRAM, tmp_path_factory.mktemp("plane")) as plane:
        for file in DEFINITIONS:
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            plane.admin().create(path, yaml.safe_load(file.read_text()))
        yield plane


@pytest.fixture(scope="module")
def kubernetes(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """The example stack with the local cloud's region, and a context of the kubeconfig."""
    home = copied(tmp_path_factory.mktemp("engine-kubernetes"))
    stacks = {name: home / "stacks" / f"Pulumi.{name}.yaml" for name in (STACK, "local")}
    written = {name: yaml.safe_load(path.read_text())["config"] for name, path in stacks.items()}
    own = {key: value for key, value in written["local"].items() if key.startswith("aws:")}
    cluster = written[STACK]["everspot:cluster"] | {"context": "local"}
    cluster["capacity"] = {
        "instanceTypes": ["c6i.large", "m6i.large"],
        "elastic": {"maxInstances": 3, "zones": ["eu-west-1a", "eu-west-1b"]},
    }
    stacks[STACK].write_text(yaml.safe_dump({"config": {**own, "everspot:cluster": cluster}}, sort_keys=False))
    with running(home, "aws") as rig:
        rig.env["KUBECONFIG"] = str(plane.kubeconfig)
        role = "arn:aws:iam::123456789012:role/eks"
        rig.client("eks").create_cluster(name="research", roleArn=role, resourcesVpcConfig={"subnetIds": ["subnet-1"]})
        yield rig


@pytest.fixture
def at_home(kubernetes: Rig) -> Iterator[None]:
    """A shell in the project's folder, which knows the local cloud."""
    with engine_killed.at_home(kubernetes):
        yield


def objects(plane: ControlPlane, path: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in plane.admin().get(path)["items"]}


def has_only(plane: ControlPlane, namespace: str, other: str) -> bool:
    """Whether there is one of two namespaces, and it stays."""
    namespaces = objects(plane, "/api/v1/namespaces")
    return other not in namespaces and "deletionTimestamp" not in namespaces[namespace]["metadata"]


def test_a_cluster_is_declared_and_changed(kubernetes: Rig, plane: ControlPlane) -> None:
    previewed = kubernetes.preview(STACK)
    created = {name for name, op in previewed.changes.items() if op == "create"}
    assert {f"{NAME}-{suffix}" for suffix in ("namespace", "node-class", "node-pool", "agents", "scheduler")} <= created
    assert "its job 90 s of them to write a checkpoint" in previewed.output
    # m6i.large is the most expensive of the two types: $0.107 in eu-west-1.
    assert "elastic: up to $0.32 more (3 instances of m6i.large at $0.107)" in previewed.output
    assert "elastic, all on Spot: $" in previewed.output and "nothing running: $0.002, " in previewed.output
    kubernetes.up(STACK, *EXCLUDED)
    associated = kubernetes.client("eks").list_pod_identity_associations(clusterName="research", namespace=NAME)
    assert {each["serviceAccount"] for each in associated["associations"]} == {"everspot-agent", "everspot-scheduler"}
    own = f"namespaces/{NAME}"
    assert set(objects(plane, f"/api/v1/{own}/serviceaccounts")) >= {"everspot-agent", "everspot-scheduler"}
    pool = objects(plane, "/apis/karpenter.sh/v1/nodepools")[NAME]
    assert pool["spec"]["limits"] == {"nodes": 3}
    assert pool["spec"]["disruption"]["consolidationPolicy"] == "WhenEmpty"
    (template,) = objects(plane, f"/api/v1/{own}/podtemplates").values()
    published = read_manifest(kubernetes)
    assert published.elastic is not None
    assert template["metadata"]["name"] == f"{published.elastic.template}-{published.elastic.template_version}"
    assert not kubernetes.preview(STACK).changes.get(f"{NAME}-node-pool")
    kubernetes.settings("capacity.elastic.maxInstances", 5, stack=STACK)
    kubernetes.settings("datasetsClaim", "flowers", stack=STACK)
    changed = kubernetes.up(STACK, *EXCLUDED)
    assert changed.changes[f"{NAME}-node-pool"] == "update"
    assert objects(plane, "/apis/karpenter.sh/v1/nodepools")[NAME]["spec"]["limits"] == {"nodes": 5}
    (template,) = objects(plane, f"/api/v1/{own}/podtemplates").values()
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "agent"}, "spec": template["template"]["spec"]}
    admitted = plane.admin().create(f"/api/v1/{own}/pods?dryRun=All", pod)["spec"]
    assert {"claimName": "flowers", "readOnly": True} in [v.get("persistentVolumeClaim") for v in admitted["volumes"]]


def test_another_namespace_waits_for_running_jobs(kubernetes: Rig, plane: ControlPlane, at_home: None) -> None:
    """Given a job that runs, when the namespace of its pods changes, then a preview says what that does to the job, and
    `up` changes nothing until the job is drained."""
    store = Store.open(kubernetes.outputs["controlUrl"])
    runs = JobRecord(
        job_id="vision-1", state=JobState.RUNNING, owner="pod-1", changed_at=datetime(2026, 1, 1, tzinfo=UTC)
    )
    version = store.records.create("vision-1", runs)
    assert version is not None
    file = Path(kubernetes.env["KUBECONFIG"])
    own, content = file.read_text(), yaml.safe_load(file.read_text())
    content["clusters"][0]["cluster"]["server"] = content["clusters"][0]["cluster"]["server"] + "/other"
    file.write_text(yaml.safe_dump(content))
    with pytest.raises(automation.CommandError) as refused:
        kubernetes.up(STACK, "--yes", *EXCLUDED)
    assert f"{NAME}-place: another context ends all instances; 1 job runs on its instances" in str(refused.value)
    file.write_text(own)
    kubernetes.settings("namespace", "moved", stack=STACK)
    roles = kubernetes.client("iam").list_roles()["Roles"]
    with pytest.raises(automation.CommandError) as refused:
        kubernetes.up(STACK, "--yes", *EXCLUDED)  # which begins with a preview
    message = str(refused.value)
    assert f"{NAME}-place: another namespace ends all instances; 1 job runs on its instances now: vision-1. " in message
    assert "1 job would be ended: vision-1. `everspot cluster drain --wait`" in message
    assert has_only(plane, NAME, "moved")
    assert kubernetes.client("iam").list_roles()["Roles"] == roles
    drained = runs.model_copy(update={"state": JobState.PENDING, "owner": None})
    assert store.records.replace("vision-1", version, drained) is not None
    assert kubernetes.up(STACK, *EXCLUDED).changes[f"{NAME}-namespace"] == "delete-replaced"
    assert has_only(plane, "moved", NAME)
    assert objects(plane, "/api/v1/namespaces/moved/podtemplates")
    elastic = read_manifest(kubernetes).elastic
    assert elastic is not None and set(elastic.places.values()) == {"moved"}


def test_a_project_of_init_is_previewed(
    plane: ControlPlane, tmp_path: Path, on_local_cloud: Callable[..., Any]
) -> None:
    """With a context of the kubeconfig, because the local EKS gives out no tokens."""
    words = {"cloud": "kubernetes", "account": "123456789012/research", "region": "us-east-2", "team": "vision",
             "repository": "Org/fleets"}  # fmt: skip
    options = [argument for name, value in words.items() for argument in (f"--{name}", value)]
    begun = everspot("init", str(tmp_path), *options, "--yes", "--json")
    assert begun.code == 0, begun.err
    (tmp_path / ".venv").symlink_to(sys.prefix)
    own = {"aws:s3UsePathStyle": "true", "aws:skipCredentialsValidation": "true"}
    for stack in ("dev", "prod"):
        file = tmp_path / "stacks" / f"Pulumi.{stack}.yaml"
        config = yaml.safe_load(file.read_text())["config"] | own
        config["everspot:cluster"] |= {"context": "local", "guardJobs": False}
        file.write_text(yaml.safe_dump({"config": config}, sort_keys=False))
    with on_local_cloud(tmp_path, "aws", "--region", "us-east-2") as rig:
        rig.env["KUBECONFIG"] = str(plane.kubeconfig)
        for stack in ("dev", "prod"):
            preview = rig.preview(stack)
            assert set(preview.changes.values()) == {"create"}
            assert {f"everspot-{stack}-{part}" for part in ("namespace", "node-pool", "scheduler")} <= set(
                preview.changes
            )
            assert "its job 90 s of them to write a checkpoint" in preview.output


def read_manifest(rig: Rig) -> Manifest:
    """The published manifest in the control bucket."""
    s3 = rig.client("s3")
    (bucket,) = [b["Name"] for b in s3.list_buckets()["Buckets"] if "control" in b["Name"]]
    return Manifest.read(json.dumps(json.load(s3.get_object(Bucket=bucket, Key="cluster.json")["Body"])))
