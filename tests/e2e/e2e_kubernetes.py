"""A whole cluster on the local Kubernetes: the real control plane and Karpenter, nodes that are machines of the local
AWS, pods that are processes. The objects are the component's, and the scheduler has their rights."""

import copy
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from e2e_helpers import BUCKETS, CLUSTER, JOB_ROLE, REGION, URLS, LiveCluster
from everspot.aws import policies
from everspot.aws.tagging import instance_tags
from everspot.kubernetes import documents
from everspot.manifest import with_idle_limit
from everspot_clouds.aws.rules import STORE_TAG
from everspot_clouds.kubernetes import rules
from everspot_core.capacity.catalogue import builtin
from everspot_core.capacity.launching import store_mark
from everspot_core.capacity.market import Market
from everspot_core.cluster.manifest import Elastic, FleetOffer, Limits, Manifest
from everspot_core.jobs.records import Role
from everspot_local.aws.pod_roles import PodRoles
from everspot_local.kubernetes.children import Child
from everspot_local.kubernetes.cluster import LocalKubernetes
from everspot_local.kubernetes.karpenter import CLUSTER as EKS_CLUSTER
from everspot_local.kubernetes.pod_identity import AUDIENCE, pod_variables
from everspot_local.kubernetes.programs import have_programs, node_command
from everspot_local.market.delays import Delays
from everspot_local.providers import owner

PROGRAMS = Path(__file__).resolve().parents[2] / ".everspot/toolchain/kubernetes"
MISSING = "there is no control plane of Kubernetes, or no Karpenter: make setup WITH=kubernetes builds both"
LACKS_PROGRAMS = not have_programs(PROGRAMS)
NAMESPACE = "training"
ZONES = tuple(f"{REGION}{letter}" for letter in "ab")
TYPES = ("c6i.large", "m6i.large")
TEMPLATE = documents.template_name(CLUSTER)
VERSION = "1"
Document = dict[str, Any]


def role_arn(name: str) -> str:
    return f"arn:aws:iam::123456789012:role/e2e-{name}"


class KubernetesLive(LiveCluster):
    """One cluster on Kubernetes. All times are this machine's, as those of Kubernetes and Karpenter are."""

    scale = 1.0
    limits = Limits(lease_ttl="15s", beat_every="5s", poll_every="0.5s", tick_every="1s", notice_poll="1s")  # type: ignore[arg-type]
    delays = Delays(
        submit=timedelta(), pending=timedelta(seconds=1), boot=timedelta(seconds=2), shutdown=timedelta(seconds=5),
        visible=timedelta(seconds=1), propagation=timedelta(seconds=2), late=timedelta(seconds=5),
    )  # fmt: skip
    max_instances = 4

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, boot=node_command(folder / "kubernetes"))
        self._scheduler_process: Child | None = None

    def __exit__(self, *_: Any) -> None:
        self.kill_scheduler()
        self.cloud.machines.processes.close()
        self.kubernetes.close()
        super().__exit__()

    def _create(self) -> None:
        for bucket in BUCKETS:
            self.client("s3").create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
        environment = owner("aws", self.cloud.endpoint, REGION)
        folder = self.folder / "kubernetes"
        roles = PodRoles(REGION, EKS_CLUSTER)
        self.kubernetes = LocalKubernetes(PROGRAMS, folder, environment, list(ZONES), roles).__enter__()
        self.api = self.kubernetes.admin()
        self._roles()
        self._declare()
        self.client("s3").put_object(Bucket=BUCKETS[0], Key="cluster.json", Body=self._published().to_json())
        self.start_scheduler()

    def _roles(self) -> None:
        """The roles of the service accounts, and that of jobs."""
        control, data = (f"arn:aws:s3:::{bucket}" for bucket in BUCKETS)
        agent = policies.agent_policy(control_arn=control, data_arn=data)
        scheduler = policies.scheduler_policy(cluster=CLUSTER, control_arn=control, queue_arn=None)
        for name, account, policy in (
            ("agent", documents.AGENT, agent),
            ("scheduler", documents.SCHEDULER, scheduler),
        ):
            trust = json.dumps(policies.trust_pods(EKS_CLUSTER, NAMESPACE, account, tagged=name != "agent"))
            self.client("iam").create_role(RoleName=f"e2e-{name}", AssumeRolePolicyDocument=trust)
            self.allow(f"e2e-{name}", "all", policy)
        trust = json.dumps(policies.trust_role(role_arn("agent"), tagged=True))
        self.client("iam").create_role(RoleName="e2e-job", AssumeRolePolicyDocument=trust)
        self.allow("e2e-job", "all", policies.job_policy(control_arn=control, data_arn=data))
        self.allow("e2e-agent", "become", policies.assume_policy(JOB_ROLE, tagged=True))

    # What the component declares ----------------------------------------------------------------------------------

    def _declare(self) -> None:
        place = documents.ObjectPlace(CLUSTER, NAMESPACE, REGION)
        self.apply("/api/v1/namespaces", documents.build_namespace(place))
        for document in documents.build_accounts(place):
            account = document["metadata"]["name"]
            self.client("eks").create_pod_identity_association(
                clusterName=EKS_CLUSTER, namespace=NAMESPACE, serviceAccount=account,
                roleArn=role_arn(account.removeprefix("everspot-")), disableSessionTags=account == documents.AGENT,
            )  # fmt: skip
            self.apply(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", document)
        for document in documents.build_rights(place):
            whole = "namespace" not in document["metadata"]
            where = "" if whole else f"/namespaces/{NAMESPACE}"
            self.apply(f"/apis/{document['apiVersion']}{where}/{document['kind'].lower()}s", document)
        self.apply("/apis/karpenter.k8s.aws/v1/ec2nodeclasses", self._node_class(place))
        most = self.max_instances
        pool = documents.build_node_pool(place, TYPES, ZONES, list(Market), "x86_64", most, job_images=True)
        self.apply("/apis/karpenter.sh/v1/nodepools", pool)
        self._declare_pool_of_others(place, pool)
        self._declare_template(VERSION)

    def _declare_pool_of_others(self, place: documents.ObjectPlace, pool: Document) -> None:
        """The NodePool that an EKS cluster has for everybody: Karpenter prefers it, and it takes the same types."""
        node_class = self._node_class(place)
        node_class["metadata"] = {"name": "everybody"}
        del node_class["spec"]["tags"]
        self.apply("/apis/karpenter.k8s.aws/v1/ec2nodeclasses", node_class)
        others = copy.deepcopy(pool)
        others["metadata"] = {"name": "everybody"}
        others["spec"]["weight"] = 100
        del others["spec"]["template"]["metadata"], others["spec"]["template"]["spec"]["taints"]
        others["spec"]["template"]["spec"]["nodeClassRef"]["name"] = "everybody"
        self.apply("/apis/karpenter.sh/v1/nodepools", others)

    def _declare_template(self, version: str, claim: str | None = None, *, job_images: bool = False) -> None:
        place = documents.ObjectPlace(CLUSTER, NAMESPACE, REGION)
        pod = self._pod(place, claim, job_images=job_images)
        template = documents.build_pod_template(place, f"{TEMPLATE}-{version}", pod)
        self.apply(f"/api/v1/namespaces/{NAMESPACE}/podtemplates", template)

    @contextmanager
    def declared(self, name: str, claim: str | None = None, *, job_images: bool = False) -> Iterator[None]:
        """Declare a setting of pods, as `up` does: pods are launched from another PodTemplate for a while."""
        version = f"{VERSION}-{name}"
        self._declare_template(version, claim, job_images=job_images)
        self._launch_from(version)
        try:
            yield
        finally:
            self._launch_from(VERSION)

    def _launch_from(self, version: str) -> None:
        manifest = self.store.manifest()
        assert manifest.elastic is not None
        elastic = manifest.elastic.model_copy(update={"template_version": version})

        def reads() -> int:
            """How often the scheduler has read another declaration."""
            return (self.folder / "scheduler.log").read_text().count("cluster.json has changed")

        self.until(lambda: list(self.store.schedulers.names()))  # after its first tick it has read the one before
        before = reads()
        self.store.write_manifest(manifest.model_copy(update={"elastic": elastic}))
        self.until(lambda: reads() > before)

    def create_claim(self, name: str, folder: Path) -> None:
        """Create a claim of a volume that is a folder of this machine, and wait until it is bound."""
        size, modes = {"storage": "1Gi"}, ["ReadOnlyMany"]
        spec = {"accessModes": modes, "capacity": size, "hostPath": {"path": str(folder)},
                "claimRef": {"namespace": NAMESPACE, "name": name}}  # fmt: skip
        self.apply("/api/v1/persistentvolumes", {"metadata": {"name": name}, "spec": spec})
        request = {"accessModes": modes, "storageClassName": "", "volumeName": name, "resources": {"requests": size}}
        claims = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
        self.apply(claims, {"metadata": {"name": name}, "spec": request})
        self.until(lambda: self.api.get(f"{claims}/{name}")["status"].get("phase") == "Bound")

    def _node_class(self, place: documents.ObjectPlace) -> Document:
        """The EC2NodeClass, with an image of the local AWS in place of EKS's."""
        tags = {"karpenter.sh/discovery": "local"}
        nodes = {
            "role": self.kubernetes.account.profile, "ami_alias": "al2023@v20260115", "subnet_tags": tags,
            "security_group_tags": tags, "volume_gib": 20,
        }  # fmt: skip
        mark = store_mark(self._manifest(Role.AGENT).control_url)
        tags = {**instance_tags(CLUSTER, {}, Role.AGENT.value), STORE_TAG: mark}
        document = documents.build_node_class(place, nodes, tags, job_images=True)
        document["spec"] |= {"amiFamily": "AL2023", "amiSelectorTerms": [{"id": "ami-12c6146b"}]}
        return document

    def _pod(self, place: documents.ObjectPlace, claim: str | None, *, job_images: bool) -> Document:
        """The pod of an agent. `claim`: with datasets; `job_images`: whether jobs may have images of their own."""
        types = [builtin().types[name] for name in TYPES]
        smallest = min(types, key=lambda t: t.memory_gib)
        manifest = with_idle_limit(self._manifest(Role.AGENT).to_json().decode(), "20s")
        pod = documents.build_pod(place, "everspot", manifest, smallest, claim, job_images=job_images)
        (agent,) = pod["spec"]["containers"]
        agent["env"].append({"name": "EVERSPOT_LAUNCHER", "value": "python3"})
        return pod

    def _manifest(self, role: Role) -> Manifest:
        return Manifest(
            cluster=CLUSTER, cloud="kubernetes", role=role, region=REGION, limits=self.limits, control_url=URLS[0],
            data_url=URLS[1], job_role=self.job_role, further_buckets=self.further_buckets,
            notice=rules.GRACE,
        )  # fmt: skip

    def _published(self) -> Manifest:
        markets = list(Market)
        elastic = Elastic(
            types=list(TYPES), markets=markets, max_instances=self.max_instances, idle_limit="20s",  # type: ignore[arg-type]
            template=TEMPLATE, template_version=VERSION, places=dict.fromkeys(ZONES, NAMESPACE),
        )  # fmt: skip
        offer = FleetOffer(types=list(TYPES), zones=list(ZONES), markets=markets)
        return self._manifest(Role.AGENT).model_copy(
            update={"elastic": elastic, "fleet": offer, "shared_instances": True}
        )

    # What a person does -------------------------------------------------------------------------------------------

    def apply(self, collection: str, document: Mapping[str, Any]) -> None:
        self.api.create(collection, dict(document))

    def start_scheduler(self) -> None:
        """Start the scheduler as its pod does: with its manifest in a file and its service account's token."""
        manifest = self.folder / "scheduler.json"
        manifest.write_bytes(self._manifest(Role.SCHEDULER).to_json())
        variables = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.kubernetes.plane.port),
            "EVERSPOT_SERVICE_ACCOUNT": str(self.account(documents.SCHEDULER)),
            "AWS_REGION": REGION,
            **self._identity(documents.SCHEDULER),
        }
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
        variables["AWS_ENDPOINT_URL"] = self.cloud.endpoint
        command = [sys.executable, "-m", "everspot_scheduler.main", "--manifest", str(manifest), "--metrics", "off"]
        self._scheduler_process = Child(command, self.folder / "scheduler.log", {**inherited, **variables})

    def kill_scheduler(self) -> None:
        if self._scheduler_process is not None:
            self._scheduler_process.kill()
            self._scheduler_process = None

    def account(self, name: str) -> Path:
        """The files of a service account, as its pod has them."""
        answer = self.api.create(
            f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{name}/token", {"spec": {"expirationSeconds": 7200}}
        )
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        (folder / "token").write_text(answer["status"]["token"])
        (folder / "ca.crt").write_bytes(self.kubernetes.plane.certificate.read_bytes())
        (folder / "namespace").write_text(NAMESPACE)
        return folder

    def _identity(self, name: str) -> dict[str, str]:
        """The variables of a service account's role, as its pod has them."""
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{name}/token"
        token = self.folder / f"{name}-pod-identity-token"
        spec = {"audiences": [AUDIENCE], "expirationSeconds": 7200}
        token.write_text(self.api.create(path, {"spec": spec})["status"]["token"])
        assert self.kubernetes.pod_identity is not None
        return pod_variables(self.kubernetes.pod_identity.url, token)

    def pods(self) -> dict[str, Document]:
        items = self.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        return {pod["metadata"]["name"]: pod for pod in items}

    def node_of(self, pod: str) -> str:
        """The node of a pod, which has the name of its machine."""
        return str(self.pods()[pod]["spec"]["nodeName"])

    def evict(self, pod: str) -> None:
        """What `kubectl drain` asks for."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": NAMESPACE}}
        self.api.create(f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction", body)

    def machines(self) -> list[str]:
        """The machines that were ever launched."""
        reservations = self.client("ec2").describe_instances()["Reservations"]
        return [instance["InstanceId"] for each in reservations for instance in each["Instances"]]

    def claims(self) -> list[Document]:
        return list(self.api.get("/apis/karpenter.sh/v1/nodeclaims")["items"])

    def consoles(self) -> str:
        files = [*self.folder.glob("instances/*/*/log"), self.folder / "scheduler.log"]
        tails = [f"--- {file}\n{file.read_text()[-2500:]}" for file in files if file.exists()]
        return "\n".join([super().consoles(), *tails, json.dumps([p["status"] for p in self.pods().values()])[:4000]])
