"""A training cluster inside an existing EKS cluster that has Karpenter.

The objects of Kubernetes are declared by their own documents under Pulumi's tokens, without Pulumi's Kubernetes SDK:
the engine fetches the plugin of every SDK that an environment has, and a program for AWS alone needs none.
"""

import json
from collections.abc import Mapping
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

import pulumi
from everspot_clouds.aws.estimate_machines import NODE_GIB
from everspot_clouds.aws.rules import STORE_TAG
from everspot_clouds.kubernetes import rules
from everspot_core.capacity.catalogue import InstanceType, zone_region
from everspot_core.capacity.fleet import CapacitySpec
from everspot_core.capacity.launching import store_mark
from everspot_core.jobs.records import Role
from everspot_core.validation.problems import Problems
from pulumi_aws import eks, s3

from everspot import common
from everspot.anomalies import build_thresholds
from everspot.aws import preview_queries, tagging
from everspot.aws.identity import AwsIdentity, AwsIdentityArgs
from everspot.aws.notifications import build_notifications
from everspot.aws.store import AwsStore
from everspot.capacity import build_elastic, build_offer, list_markets, spelt
from everspot.custom_types import declared_types, resolve_types
from everspot.guard import JOB_ROLE, PlaceChange, Settings, guard, list_changed, place_guard
from everspot.kubernetes import documents
from everspot.kubernetes.args import AwsKubernetesPoolArgs
from everspot.kubernetes.checking import check_pool, choose_namespace, parse_capacity, store_args
from everspot.kubernetes.offers import check_offers, print_hourly_cost
from everspot.kubernetes.seccomp import profile_version
from everspot.limits import IDLE_LIMIT
from everspot.manifest import build_declared, build_manifest, with_idle_limit
from everspot.parts import inputs, outputs
from everspot.pricing import declared_prices, unpriced_types
from everspot.scraping import build_metrics

CLOUD = "kubernetes"
"""The name of this cloud in the manifest."""
_SUFFIXES = {
    "Role": "role", "RoleBinding": "binding", "ClusterRole": "cluster-role", "ClusterRoleBinding": "cluster-binding",
}  # fmt: skip
"""Ends of the declared names of rights, by their kind."""
PLUGIN = "4.24.1"
"""Version of Pulumi's Kubernetes provider."""


class AwsKubernetesPool(pulumi.ComponentResource):
    """A training cluster inside an existing EKS cluster: store, roles, nodes by Karpenter, and scheduler. The
    component's name is the cluster's name."""

    cluster: pulumi.Output[str]
    """Name of the cluster."""
    control_url: pulumi.Output[str]
    """URL of the control bucket: what the CLI needs to find the cluster."""
    data_url: pulumi.Output[str]
    """URL of the data bucket."""
    namespace: pulumi.Output[str]
    """Namespace of the pods."""
    node_pool: pulumi.Output[str]
    """Name of Karpenter's NodePool."""
    agent_role_arn: pulumi.Output[str]
    """ARN of the agents' role."""
    job_role_arn: pulumi.Output[str]
    """ARN of the jobs' role; empty with `jobRole: false`."""
    scheduler_role_arn: pulumi.Output[str]
    """ARN of the scheduler's role."""
    region: pulumi.Output[str]
    """Region of the cluster."""

    def __init__(self, name: str, args: AwsKubernetesPoolArgs, opts: pulumi.ResourceOptions | None = None):
        registered = {"capacity": spelt(args["capacity"]), "nodes": spelt(args["nodes"]), "tags": args["tags"]}
        super().__init__(common.token("AwsKubernetesPool"), name, registered, opts)
        check_pool(name, args, zones_of=lambda: preview_queries.zones_now(self))
        self._name, self._args = name, args
        self._job_images = args.get("job_images", False)
        self._child = pulumi.ResourceOptions(parent=self)
        self.cluster = pulumi.Output.from_input(name)
        region = zone_region(args["capacity"]["elastic"]["zones"][0])
        self._place = documents.ObjectPlace(name, choose_namespace(name, args), region)
        self.region = preview_queries.read_region(self).apply(lambda actual: _same_region(name, region, actual))
        self._provider = self._kubernetes()
        store = AwsStore(f"{name}-store", store_args(name, args), self._child)
        self.control_url, self.data_url = store.control_url, store.data_url
        self.namespace = pulumi.Output.from_input(self._place.namespace)
        self.node_pool = pulumi.Output.from_input(name)
        pod_identity = {"eks_cluster": args["eks_cluster"], "namespace": self._place.namespace}
        pod_identity |= {"agent_account": documents.AGENT, "scheduler_account": documents.SCHEDULER}
        arns = {"control_arn": store.control_arn, "data_arn": store.data_arn}
        own = {"cluster": name, "pod_identity": pod_identity, **arns}
        place: dict[str, Any] = {"eksCluster": args["eks_cluster"], "namespace": self._place.namespace}
        place[JOB_ROLE] = args.get("job_role", True)
        if "context" in args:
            place["context"] = find_server(args["context"])
        on = args.get("guard_jobs", True)
        self._place_guard = place_guard(
            self, f"{name}-place", store.control_url, place, on=on, move=PlaceChange(list_moved)
        )
        # The buckets first: they refuse a change of their key that would make objects unreadable for the roles.
        stored = pulumi.ResourceOptions(parent=self, depends_on=[store, *self._place_guard])
        identity = AwsIdentity(f"{name}-identity", inputs(AwsIdentityArgs, args, **own), stored)
        self.agent_role_arn, self.scheduler_role_arn = identity.agent_role_arn, identity.scheduler_role_arn
        self.job_role_arn = identity.job_role_arn
        namespace = self._declare("namespace", documents.build_namespace(self._place))
        whole = [store, identity, *self._accounts(namespace, identity), *self._rights(namespace)]
        nodes = [self._node_class(), self._node_pool()]
        pod, version = self._pod(self._manifest(Role.AGENT, identity))
        template = pulumi.Output.concat(documents.template_name(name), "-", version)
        agents = self._declare("agents", documents.build_pod_template(self._place, template, pod), namespace)
        published = self._manifest(Role.AGENT, identity, version)
        # A scheduler that reads of a PodTemplate before it is there would be refused.
        after = pulumi.ResourceOptions(parent=self, depends_on=[agents, *nodes])
        for suffix, key, content in (
            ("manifest", "cluster.json", published),
            ("declared", "declared.json", build_declared([name])),
        ):
            s3.BucketObjectv2(
                f"{name}-{suffix}",
                bucket=store.control_bucket,
                key=key,
                content=content,
                content_type="application/json",
                opts=after,
            )
        manifest = self._manifest(Role.SCHEDULER, identity)
        settings = self._declare("settings", documents.build_config_map(self._place, manifest), namespace)
        metrics = build_metrics(args.get("prometheus"))
        version = manifest.apply(documents.digest)
        deployment = documents.build_deployment(self._place, args["image"], version, metrics.port if metrics else None)
        scheduler = self._declare("scheduler", deployment, settings, *whole)
        self._print_grace()
        check_offers(self, name, args["capacity"])
        print_hourly_cost(self, args["capacity"], self.region)
        guard(
            self,
            f"{name}-guard",
            self.control_url,
            [*whole, *nodes, agents, scheduler],
            on=on,
        )
        self.register_outputs(outputs(self))

    def _kubernetes(self) -> pulumi.ProviderResource:
        """Return the provider that reaches the Kubernetes cluster: by a context of the kubeconfig, or by what EKS says
        of its endpoint."""
        if "context" in self._args:
            # Without the identifier the provider takes another context for the same cluster, and moves nothing.
            identifier = f"{self._place.region}/{self._args['eks_cluster']}"
            reached: dict[str, Any] = {"context": self._args["context"], "clusterIdentifier": identifier}
        else:
            cluster = self._args["eks_cluster"]
            missing = f"eksCluster: {cluster} cannot be described (eks:DescribeCluster): is it one of this region?"
            answer = preview_queries.invoke(self, "eks/getCluster:getCluster", {"name": cluster}, failed=missing)
            reached = {"kubeconfig": pulumi.Output.all(answer, self.region).apply(lambda a: kubeconfig(cluster, *a))}
        options = pulumi.ResourceOptions(parent=self, version=PLUGIN)
        return pulumi.ProviderResource("kubernetes", f"{self._name}-kubernetes", reached, options)

    def _declare(self, suffix: str, document: documents.Document, *after: pulumi.Resource) -> pulumi.Resource:
        """Declare an object of Kubernetes."""
        group, kind = document["apiVersion"], document["kind"]
        before = [*self._place_guard, *after]
        options = pulumi.ResourceOptions(parent=self, provider=self._provider, version=PLUGIN, depends_on=before)
        token = f"kubernetes:{group if '/' in group else f'core/{group}'}:{kind}"
        return pulumi.CustomResource(token, f"{self._name}-{suffix}", document, options)

    def _accounts(self, namespace: pulumi.Resource, identity: AwsIdentity) -> list[pulumi.Resource]:
        """Declare the service accounts, and associate each with its role."""
        declared: list[pulumi.Resource] = []
        roles = {documents.SCHEDULER: identity.scheduler_role_arn, documents.AGENT: identity.agent_role_arn}
        for document in documents.build_accounts(self._place):
            account = document["metadata"]["name"]
            suffix = account.removeprefix("everspot-")
            declared.append(self._declare(f"{suffix}-account", document, namespace))
            declared.append(
                eks.PodIdentityAssociation(
                    f"{self._name}-{suffix}-pods",
                    cluster_name=self._args["eks_cluster"],
                    namespace=self._place.namespace,
                    service_account=account,
                    role_arn=roles[account],
                    # STS has no room for a job's session policy beside the tags of the agent's session, which go over
                    # to the job's (https://github.com/aws/containers-roadmap/issues/2413).
                    disable_session_tags=account == documents.AGENT,
                    tags=tagging.cluster_tags(self._name, self._args["tags"]),
                    # A pod gets its credentials when it starts: its role has its permissions by then.
                    opts=pulumi.ResourceOptions(parent=self, depends_on=[namespace, identity]),
                )
            )
        return declared

    def _rights(self, namespace: pulumi.Resource) -> list[pulumi.Resource]:
        """Declare what the service accounts may do, and what their pods reach."""
        declared = [self._declare("network", documents.build_network_policy(self._place), namespace)]
        if (metrics := build_metrics(self._args.get("prometheus"))) is not None:
            readers = self._args["prometheus"]["namespaces"]
            policy = documents.build_metrics_policy(self._place, readers, metrics.port)
            declared.append(self._declare("metrics", policy, namespace))
        for document in documents.build_rights(self._place):
            account = "agent" if document["metadata"]["name"].endswith("-agent") else "scheduler"
            declared.append(self._declare(f"{account}-{_SUFFIXES[document['kind']]}", document, namespace))
        return declared

    def _node_class(self) -> pulumi.Resource:
        nodes = {"volume_gib": NODE_GIB, **self._args["nodes"]}
        tags: dict[str, Any] = tagging.instance_tags(self._name, self._args["tags"], Role.AGENT.value)
        # By the mark they are told from the nodes of a cluster of the same name in another Kubernetes cluster.
        tags = {**tags, STORE_TAG: self.control_url.apply(store_mark)}
        document = documents.build_node_class(self._place, nodes, tags, job_images=self._job_images)
        return self._declare("node-class", document)

    def _node_pool(self) -> pulumi.Resource:
        capacity = self._args["capacity"]
        elastic, types = capacity["elastic"], [entry["type"] for entry in capacity["instance_types"]]
        arch, most = self._smallest().arch, int(elastic["max_instances"])
        document = documents.build_node_pool(
            self._place, types, elastic["zones"], list_markets(elastic), arch, most, job_images=self._job_images
        )
        return self._declare("node-pool", document)

    def _smallest(self) -> InstanceType:
        """Return the type that the agents' requests have to fit."""
        entries = self._args["capacity"]["instance_types"]
        catalogued = resolve_types(entries)
        types = [catalogued[entry["type"]] for entry in entries]
        smallest = min(types, key=lambda t: t.memory_gib)
        return smallest.model_copy(update={"vcpus": min(t.vcpus for t in types)})

    def _pod(self, manifest: pulumi.Output[str]) -> tuple[documents.Document, pulumi.Output[str]]:
        """Return the agents' pod, and the version of its content."""
        idle_limit = self._args["capacity"]["elastic"].get("idle_limit", IDLE_LIMIT)
        text = manifest.apply(lambda plain: with_idle_limit(plain, idle_limit))

        def build(manifest: Any) -> documents.Document:
            claim = self._args.get("datasets_claim")
            image, smallest = self._args["image"], self._smallest()
            return documents.build_pod(self._place, image, manifest, smallest, claim, job_images=self._job_images)

        return build(text), text.apply(lambda plain: documents.digest(build(plain)))

    def _manifest(
        self, role: Role, identity: AwsIdentity, version: pulumi.Output[str] | None = None
    ) -> pulumi.Output[str]:
        """Return the manifest of a role as JSON. `version`: of the PodTemplate, for `cluster.json` alone."""
        facts: dict[str, Any] = {"region": self.region, "control_url": self.control_url, "data_url": self.data_url}
        if self._args.get("job_role", True):
            facts["job_role"] = identity.job_role_arn
        if version is not None:
            facts["version"] = version
        return pulumi.Output.all(**facts).apply(lambda resolved: self._manifest_text(role, resolved))

    def _manifest_text(self, role: Role, resolved: Mapping[str, Any]) -> str:
        args, capacity = self._args, self._args["capacity"]
        entries, zones = capacity["instance_types"], capacity["elastic"]["zones"]
        published = "version" in resolved
        launched: dict[str, Any] = {}
        if published:
            shape: CapacitySpec = parse_capacity(capacity)
            resources = {
                "template": documents.template_name(self._name),
                "version": resolved["version"],
                "places": dict.fromkeys(zones, self._place.namespace),
            }
            tags = tagging.instance_tags(self._name, args["tags"], Role.AGENT.value)
            launched = {
                "fleet": build_offer(capacity, shape, zones),
                "elastic": build_elastic(capacity, tags, resources),
                "notifications": build_notifications(args.get("notifications")),
                "list_prices": declared_prices("aws", resolved["region"], unpriced_types(entries)),
                "shares": args.get("shares"),
                "team": args["tags"].get("Team"),
                "shared_instances": args.get("shared_instances", False),
                "anomalies": build_thresholds(args.get("anomalies")),
                "job_images": self._job_images,
            }
        return build_manifest(
            role,
            cloud=CLOUD,
            cluster=self._name,
            limits=args.get("limits", {}),
            types=declared_types(entries),
            machine=self._machine(),
            facts={key: value for key, value in resolved.items() if key != "version"},
            notice=rules.GRACE,
            further_buckets=bool(args.get("read_bucket_arns")),
            metrics=build_metrics(args.get("prometheus")) if role is Role.SCHEDULER else None,
            **launched,
        )

    def _machine(self) -> dict[str, Any]:
        """Return what another generation of agents differs in."""
        machine: dict[str, Any] = {
            key: self._args[key] for key in ("image", "nodes", "datasets_claim") if key in self._args
        }
        return machine | ({"seccomp": profile_version()} if self._job_images else {})

    def _print_grace(self) -> None:
        """Say in a preview what fits into a notice."""
        if pulumi.runtime.is_dry_run():
            pulumi.log.info(f"A pod has {_seconds(rules.GRACE)} from a notice to its end, {what_fits()}.", self)


def what_fits() -> str:
    """Return how much of the grace period a job has."""
    return f"and its job {_seconds(rules.GRACE - rules.STOP_MARGIN)} of them to write a checkpoint"


def _seconds(span: timedelta) -> str:
    return f"{span.total_seconds():.0f} s"


def find_server(context: str) -> str:
    """Return the address of the API server that a context of the kubeconfig leads to; the context's own name if that
    cannot be told."""
    if find_spec("kubernetes") is None:
        return context
    from everspot_clouds.kubernetes.client import read_server

    return read_server(context) or context


def list_moved(old: Settings, new: Settings) -> list[str]:
    """Return the settings by which the cluster is moved. A context is compared if the addresses of both servers are
    known: on a machine without the kubeconfig, or without its client, the same context has only its name."""
    unknown = {"context"} if not all("://" in str(place.get("context")) for place in (old, new)) else set()
    return [name for name in list_changed(old, new) if name in new and name not in unknown]


def kubeconfig(cluster: str, eks_cluster: Mapping[str, Any], region: str) -> str:
    """Return a kubeconfig of an EKS cluster. Its token is asked for when it is used, by the caller's own credentials.

    Source: Amazon EKS User Guide, "Connect kubectl to an EKS cluster by creating a kubeconfig file".
    """
    authority = eks_cluster["certificateAuthorities"][0]["data"]
    arguments = ["--region", region, "eks", "get-token", "--cluster-name", cluster, "--output", "json"]
    login = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "aws", "args": arguments}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": cluster,
        "clusters": [
            {
                "name": cluster,
                "cluster": {"server": eks_cluster["endpoint"], "certificate-authority-data": authority},
            }
        ],
        "users": [{"name": cluster, "user": {"exec": login}}],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": cluster}}],
    }
    return json.dumps(document)


def _same_region(name: str, region: str, actual: str) -> str:
    """Return the provider's region.

    Raises:
        BadComponentInputs: if the zones are of another one.
    """
    problems = Problems()
    problems.need(region == actual, "capacity.elastic.zones", f"are of {region}, and the provider's region is {actual}")
    common.raise_bad(problems, f"AwsKubernetesPool {name}")
    return actual
