"""Rules about what a Kubernetes cluster lets in."""

from collections.abc import Iterator

from everspot_core.validation.problems import Problem

from everspot_policy.addresses import open_ranges
from everspot_policy.reading import hidden, inner, text, texts
from everspot_policy.rule import Level, Rule, Severity, Subject, rule

INTERNAL = {
    "service.beta.kubernetes.io/aws-load-balancer-internal": "true",
    "service.beta.kubernetes.io/aws-load-balancer-scheme": "internal",
    "networking.gke.io/load-balancer-type": "internal",
    "cloud.google.com/load-balancer-type": "internal",
}
"""Annotations by which a load balancer has no public address: AWS Load Balancer Controller, "Service annotations";
Google Kubernetes Engine, "Create an internal load balancer"."""
SOURCES = "service.beta.kubernetes.io/load-balancer-source-ranges"
"""The annotation that does the same as `loadBalancerSourceRanges`, which comes first."""


@rule(
    "kubernetes-no-open-load-balancer",
    Level.MANDATORY,
    Severity.CRITICAL,
    title="No load balancer is open to everybody",
    remedy="Set loadBalancerSourceRanges, or the cloud's annotation for internal ones.",
    types=("kubernetes:core/*:Service", "kubernetes:core/*:ServicePatch"),
)
def no_open_load_balancer(subject: Subject) -> Iterator[Problem]:
    """Find services with a public load balancer that takes connections from everywhere, which is the default."""
    spec, metadata = inner(subject.inputs, "spec"), inner(subject.inputs, "metadata")
    if text(spec.get("type")) != "LoadBalancer" or hidden(metadata.get("annotations")):
        return
    annotations = inner(metadata, "annotations")
    if any(text(annotations.get(name)).lower() == value for name, value in INTERNAL.items()):
        return
    path, ranges = "spec.loadBalancerSourceRanges", spec.get("loadBalancerSourceRanges")
    if not ranges and annotations.get(SOURCES):
        path, ranges = f'metadata.annotations["{SOURCES}"]', annotations[SOURCES]
        ranges = text(ranges).split(",") if text(ranges) else ranges
    if hidden(ranges):
        return
    if not ranges:
        yield Problem(path, "is missing: everybody may connect")
    for cidr in open_ranges(texts(ranges)):
        yield Problem(path, f"{cidr} is everybody")


RULES: tuple[Rule, ...] = (no_open_load_balancer,)
