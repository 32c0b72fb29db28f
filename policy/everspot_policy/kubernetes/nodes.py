"""Rules about the nodes that Karpenter launches. They are instances that no other rule sees: Karpenter makes them."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from everspot_clouds.kubernetes.boot_rules import MARKET_LABEL, SPOT, TYPE_LABEL, ZONE_LABEL
from everspot_clouds.kubernetes.rules import CLUSTER_LABEL
from everspot_core.validation.problems import Problem

from everspot_policy.aws.purchases import FEWEST_POOLS
from everspot_policy.aws.tags import MANDATORY, lacking_tags
from everspot_policy.reading import hidden, inner, lacks, mapping, number, objects, text, texts, yes
from everspot_policy.rule import Level, Rule, Severity, Subject, rule

POOL = "kubernetes:karpenter.sh/*:NodePool"
CLASS = "kubernetes:karpenter.k8s.aws/*:EC2NodeClass"
TEMPLATE = "kubernetes:core/*:PodTemplate"
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"


def _is_training(subject: Subject, *names: str) -> bool:
    """Return whether nodes or pods are a training cluster's, by the labels of their template."""
    return CLUSTER_LABEL in inner(subject.inputs, *names, "metadata", "labels")


@rule(
    "kubernetes-nodes-end-empty",
    Level.MANDATORY,
    Severity.HIGH,
    title="Only empty nodes of a training cluster are ended",
    remedy="Set consolidationPolicy: WhenEmpty, expireAfter: Never, and a budget of 0 nodes for Drifted.",
    types=(POOL,),
)
def nodes_end_empty(subject: Subject) -> Iterator[Problem]:
    """Find what ends nodes that are in use, in the pools of training clusters."""
    if not _is_training(subject, "spec", "template"):
        return
    spec = inner(subject.inputs, "spec")
    disruption, template = inner(spec, "disruption"), inner(spec, "template", "spec")
    policy, age = disruption.get("consolidationPolicy"), template.get("expireAfter")
    if not hidden(spec.get("disruption")):
        if not hidden(policy) and policy != "WhenEmpty":
            yield Problem("spec.disruption.consolidationPolicy", "is not WhenEmpty")
        if not hidden(disruption.get("budgets")) and not _holds_drift(disruption):
            yield Problem("spec.disruption.budgets", "has no budget of 0 nodes for the reason Drifted")
    if not hidden(age) and age != "Never":
        yield Problem("spec.template.spec.expireAfter", "is not Never")


def _holds_drift(disruption: Mapping[str, Any]) -> bool:
    """Return whether a budget without a schedule lets no drifted node be ended. The smallest budget counts."""
    return any(
        number(budget.get("nodes")) == 0
        and "schedule" not in budget
        and (budget.get("reasons") is None or "Drifted" in texts(budget.get("reasons")))
        for _, budget in objects(disruption, "budgets")
    )


@rule(
    "kubernetes-agents-evictable",
    Level.MANDATORY,
    Severity.HIGH,
    title="Agents may be evicted",
    remedy="Take karpenter.sh/do-not-disrupt away: Karpenter does not evict such a pod at a spot notice.",
    types=(TEMPLATE,),
)
def agents_evictable(subject: Subject) -> Iterator[Problem]:
    """Find agents that Karpenter does not evict."""
    annotations = inner(subject.inputs, "template", "metadata", "annotations")
    if _is_training(subject, "template") and yes(annotations.get(DO_NOT_DISRUPT)):
        yield Problem(f"template.metadata.annotations.{DO_NOT_DISRUPT}", "is set")


@rule(
    "kubernetes-node-imdsv2",
    Level.MANDATORY,
    Severity.HIGH,
    title="Nodes demand IMDSv2, and pods do not reach it",
    remedy="Set httpTokens: required and httpPutResponseHopLimit: 1.",
    types=(CLASS,),
)
def node_imdsv2(subject: Subject) -> Iterator[Problem]:
    """Find nodes whose metadata service is open to IMDSv1, or to pods."""
    options = inner(subject.inputs, "spec", "metadataOptions")
    tokens, hops = options.get("httpTokens"), number(options.get("httpPutResponseHopLimit"))
    if text(tokens) and tokens != "required":
        yield Problem("spec.metadataOptions.httpTokens", "is not required")
    if hops is not None and hops > 1:
        yield Problem("spec.metadataOptions.httpPutResponseHopLimit", "is more than 1")


@rule(
    "kubernetes-node-encrypted",
    Level.MANDATORY,
    Severity.HIGH,
    title="Volumes of nodes are encrypted",
    remedy="Set encrypted: true.",
    types=(CLASS,),
)
def node_encrypted(subject: Subject) -> Iterator[Problem]:
    """Find volumes that are not declared to be encrypted."""
    for path, device in objects(inner(subject.inputs, "spec"), "blockDeviceMappings"):
        if not hidden(device.get("ebs")) and lacks(mapping(device.get("ebs")).get("encrypted")):
            yield Problem(f"spec.{path}.ebs.encrypted", "is not true")


@rule(
    "kubernetes-node-private",
    Level.MANDATORY,
    Severity.HIGH,
    title="Nodes have no public address",
    remedy="Set associatePublicIPAddress: false.",
    types=(CLASS,),
)
def node_private(subject: Subject) -> Iterator[Problem]:
    """Find nodes with a public address."""
    if yes(inner(subject.inputs, "spec").get("associatePublicIPAddress")):
        yield Problem("spec.associatePublicIPAddress", "is true")


@rule(
    "kubernetes-node-tags",
    Level.MANDATORY,
    Severity.MEDIUM,
    title=f"Nodes carry {', '.join(MANDATORY)}",
    remedy="Give them in spec.tags.",
    types=(CLASS,),
)
def node_tags(subject: Subject) -> Iterator[Problem]:
    """Find node classes whose instances would lack a tag. Default tags of a provider do not reach them."""
    spec = inner(subject.inputs, "spec")
    if not hidden(subject.inputs.get("spec")) and not hidden(spec.get("tags")):
        yield from lacking_tags("spec.tags", mapping(spec.get("tags")))


@rule(
    "kubernetes-nodes-limited",
    Level.MANDATORY,
    Severity.HIGH,
    title="A NodePool has a limit",
    remedy="Set spec.limits, such as nodes: 8.",
    types=(POOL,),
)
def nodes_limited(subject: Subject) -> Iterator[Problem]:
    """Find node pools that may grow without end."""
    spec = inner(subject.inputs, "spec")
    limits = spec.get("limits")
    if not hidden(subject.inputs.get("spec")) and not hidden(limits) and not mapping(limits):
        yield Problem("spec.limits", "is not given")


@rule(
    "kubernetes-spot-pools",
    Level.ADVISORY,
    Severity.MEDIUM,
    title=f"Spot nodes come from {FEWEST_POOLS} pools or more",
    remedy="Name more types and zones.",
    types=(POOL,),
)
def spot_pools(subject: Subject) -> Iterator[Problem]:
    """Find node pools that launch Spot from few pools. Types or zones that are chosen by other labels are many."""
    requirements = inner(subject.inputs, "spec", "template", "spec")
    values = {
        text(each.get("key")): texts(each.get("values"))
        for _, each in objects(requirements, "requirements")
        if each.get("operator") == "In"
    }
    types, zones = values.get(TYPE_LABEL), values.get(ZONE_LABEL)
    if SPOT not in values.get(MARKET_LABEL, []) or not types or not zones:
        return
    if (count := len(types) * len(zones)) < FEWEST_POOLS:
        reason = f"has {count} pools of type and zone; Spot needs {FEWEST_POOLS} or more"
        yield Problem("spec.template.spec.requirements", reason)


def teams(subject: Subject) -> Iterator[tuple[str, str]]:
    """Yield the team of a node class, with its path."""
    team = text(inner(subject.inputs, "spec", "tags").get("Team"))
    if team and fnmatchcase(subject.type, CLASS):
        yield "spec.tags.Team", team


RULES: tuple[Rule, ...] = (
    nodes_end_empty, agents_evictable, node_imdsv2, node_encrypted, node_private, node_tags, nodes_limited, spot_pools,
)  # fmt: skip
