"""Decides what a preflight finds: permissions, the machine image, and what a probe reported. Pure functions.

The adapters of the clouds ask, and these functions turn the answers into checks, each with the sentence that fixes it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from everspot_core.capacity.catalogue import Catalogue, InstanceType
from everspot_core.capacity.gpus import IMAGE_BUILD, Families, unfit
from everspot_core.capacity.launching import LaunchTrouble
from everspot_core.capacity.market import Market
from everspot_core.cluster.checks import Check, Verdict
from everspot_core.cluster.manifest import Manifest
from everspot_core.counting import counted, first_few
from everspot_core.jobs.records import InstanceRecord, JobState

_SHOWN = 6
"""Permissions that a row names before it counts the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightPlan:
    """A cluster as its stack's settings declare it, before it exists.

    Attributes:
        manifest: Its `cluster.json`, as far as the settings tell: cluster, cloud, region, account and capacity.
        catalogue: With the types that are declared in place.
        types: The instance types, in the order of the settings.
        image: Name of its machine image: an id, a path, or the name of a family.
        image_source: Where a name of an image is looked up: a parameter or a family; empty for an image itself.
        volume_gib: Size of the root volume; None: the image's own.
        gpu_arches: The architectures that the image's torch has code for.
        subnet_ids: Existing subnets of the cluster; empty for a new network.
        boundary: The permissions boundary of its roles; empty for none.
        job_role: Whether jobs have credentials that are limited to them.
        host_cluster: The existing cluster of containers that it becomes a part of; empty for machines of its own.
        namespace: Its part of that cluster.
        context: The name under which the person's configuration has that cluster; empty for the usual one.
        datasets_claim: The claim of a volume with datasets that its instances mount; empty for none.
        zones: The zones of its nodes in that cluster.
        node_role: The role of these nodes.
        subnet_tags: The tags by which the subnets of these nodes are found.
        security_group_tags: The tags by which their security groups are found.
        image_repositories: The repositories from which jobs may have images of their own.
    """

    manifest: Manifest
    catalogue: Catalogue
    types: tuple[InstanceType, ...]
    image: str
    image_source: str = ""
    volume_gib: int | None = None
    gpu_arches: tuple[str, ...] = IMAGE_BUILD.arches
    subnet_ids: tuple[str, ...] = ()
    boundary: str = ""
    job_role: bool = True
    host_cluster: str = ""
    namespace: str = ""
    context: str = ""
    datasets_claim: str = ""
    zones: tuple[str, ...] = ()
    node_role: str = ""
    subnet_tags: Mapping[str, str] = field(default_factory=dict)
    security_group_tags: Mapping[str, str] = field(default_factory=dict)
    image_repositories: tuple[str, ...] = ()

    @property
    def markets(self) -> tuple[Market, ...]:
        """The markets in which the cluster has instances, or launches them."""
        standing, elastic = self.manifest.standing, self.manifest.elastic
        used = set(elastic.markets if elastic is not None and elastic.max_instances else ())
        if standing is not None:
            used |= {Market.ON_DEMAND} if standing.on_demand_units else set()
            used |= {Market.SPOT} if standing.spot_units else set()
        return tuple(market for market in Market if market in used)


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """A machine image as its cloud describes it.

    Attributes:
        name: Its id or path.
        arch: x86_64 or arm64; empty if the cloud does not say.
        gib: Size of its root volume; None if the cloud does not say.
    """

    name: str
    arch: str
    gib: int | None


def cap_checks(plan: PreflightPlan) -> list[Check]:
    """Return the check that the cap in USD per hour has room for one instance, at the catalogue's prices; none without
    a cap, or if no price is known. A Spot price may fall below those that are known, so that is a warning."""
    elastic, region = plan.manifest.elastic, plan.manifest.region or ""
    if elastic is None or elastic.max_usd_per_hour is None or not elastic.max_instances:
        return []
    prices = list[tuple[float, str]]()
    for kind in plan.types:
        on_demand, spot = plan.catalogue.on_demand(kind.name, region), plan.catalogue.spot_range(kind.name, region)
        if on_demand is not None and Market.ON_DEMAND in elastic.markets:
            prices.append((on_demand.usd_per_hour, f"{kind.name} on-demand"))
        if spot is not None and Market.SPOT in elastic.markets:
            prices.append((spot[0].usd_per_hour, f"{kind.name} on Spot"))
    if not prices:
        return []
    (usd, cheapest), cap = min(prices), f"maxUsdPerHour {elastic.max_usd_per_hour:g}"
    if usd <= elastic.max_usd_per_hour:
        return [Check("user", "cap", Verdict.OK, f"{cap} has room for {cheapest} at ${usd:.3f}")]
    detail = f"{cap} is less than an hour of any type costs: the cheapest, {cheapest}, is ${usd:.3f}"
    verdict = Verdict.WARN if Market.SPOT in elastic.markets else Verdict.FAIL
    return [Check("user", "cap", verdict, detail, "raise capacity.elastic.maxUsdPerHour: nothing is launched under it")]


def permission_checks(
    identity: str, grants: Mapping[str, bool | None], *, separator: str, how_to_ask: str
) -> list[Check]:
    """Return a check for each service: which calls the credentials may not make.

    Args:
        identity: The identity, as its cloud names it.
        grants: By permission, whether it is grants; None: the cloud could not be asked.
        separator: The character that ends a permission's service.
        how_to_ask: What lets the cloud be asked.
    """
    services: dict[str, dict[str, bool | None]] = {}
    for permission in sorted(grants):
        services.setdefault(permission.partition(separator)[0], {})[permission] = grants[permission]
    return [_service_check(identity, service, answers, how_to_ask) for service, answers in services.items()]


def _service_check(identity: str, service: str, answers: Mapping[str, bool | None], how_to_ask: str) -> Check:
    name, total = f"permissions: {service}", len(answers)
    denials = [permission for permission, allowed in answers.items() if allowed is False]
    unanswered = [permission for permission, allowed in answers.items() if allowed is None]
    if denials:
        detail = f"{len(denials)} of {total} are denied: {first_few(denials, _SHOWN)}"
        return Check("credentials", name, Verdict.FAIL, detail, f"allow {', '.join(denials)} to {identity}")
    if unanswered:
        detail = f"{counted(total - len(unanswered), 'call')} allowed, {len(unanswered)} not asked: "
        return Check("credentials", name, Verdict.SKIP, detail + first_few(unanswered, _SHOWN), how_to_ask)
    return Check("credentials", name, Verdict.OK, f"{counted(total, 'call')} allowed")


def image_checks(image: ImageFacts, plan: PreflightPlan, families: Families) -> list[Check]:
    """Return the checks of an image against the types that start from it: architecture, size, and torch's GPUs.

    Args:
        families: The cloud's families of types with GPUs.
    """
    return [
        _arch_check(image, plan.types),
        _size_check(image, plan.volume_gib),
        _gpu_check(plan.types, plan.gpu_arches, families),
    ]


def _arch_check(image: ImageFacts, types: Sequence[InstanceType]) -> Check:
    others = [f"{kind.name} ({kind.arch})" for kind in types if image.arch and kind.arch != image.arch]
    if others:
        detail = f"{image.name} is for {image.arch}; it does not start on {', '.join(others)}"
        fix = "take these types out of capacity.instanceTypes, or name an image of their architecture"
        return Check("user", "image: architecture", Verdict.FAIL, detail, fix)
    detail = f"{image.name} is for {image.arch or 'an architecture that the cloud does not tell'}"
    return Check("user", "image: architecture", Verdict.OK if image.arch else Verdict.SKIP, detail)


def _size_check(image: ImageFacts, volume_gib: int | None) -> Check:
    if image.gib is None:
        return Check("user", "image: size", Verdict.SKIP, "the cloud does not tell the size of its root volume")
    if volume_gib is not None and volume_gib < image.gib:
        detail = f"volumeGib is {volume_gib}, and the image's own volume has {image.gib} GiB"
        fix = f"set volumeGib to {image.gib} or more, or leave it out"
        return Check("user", "image: size", Verdict.FAIL, detail, fix)
    return Check("user", "image: size", Verdict.OK, f"{image.gib} GiB, in a volume of {volume_gib or image.gib} GiB")


def _gpu_check(types: Iterable[InstanceType], arches: Sequence[str], families: Families) -> Check:
    with_gpus = [kind for kind in types if kind.gpus]
    reasons = [reason for kind in with_gpus if (reason := unfit(kind, arches, families)) is not None]
    if reasons:
        fix = "take these types out of capacity.instanceTypes, or name an image whose torch has their code (gpuArches)"
        return Check("user", "image: GPUs", Verdict.FAIL, "; ".join(reasons), fix)
    names = ", ".join(kind.name for kind in with_gpus)
    return Check("user", "image: GPUs", Verdict.OK, f"torch has code for {names}" if names else "no type has GPUs")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFacts:
    """The known facts of a probe: a small job that should run on an instance of one market.

    Attributes:
        market: The market to prove.
        job_id: Of the probe.
        state: Of the job, when it was last read.
        instance: The record of the instance that it had last; None without one.
        launched: Ids of the instances that the cloud launched for it.
        refusals: The cloud's refusals of its launches, each once.
        troubles: Kinds of these refusals.
        waits_because: Why it waits; empty if it does not.
        failure: The last lines of its error.
        gpus: GPUs that it asked for.
        report: What its program found; None if nothing has arrived.
    """

    market: Market
    job_id: str
    state: JobState
    instance: InstanceRecord | None
    launched: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    troubles: frozenset[LaunchTrouble] = frozenset()
    waits_because: str = ""
    failure: str = ""
    gpus: int = 0
    report: Mapping[str, object] | None = None


_TOLERANCE = 1e-3
"""Relative difference of the compiled function's result, a sum of 65,536 numbers in 32 bits."""


def probe_checks(facts: ProbeFacts) -> list[Check]:
    """Return the checks that a probe proves. A check that cannot be judged is left out: without an instance, the only
    check says why there is no instance."""
    if facts.instance is None and facts.launched:
        return _silent_checks(facts)
    launch = _launch_check(facts)
    if facts.instance is None:
        return [launch]
    agent = Check(
        "cluster",
        f"{facts.market.value}: agent",
        Verdict.OK,
        "read its metadata, found the store by name, and reported",
    )
    return [launch, agent, *_run_checks(facts)]


def _silent_checks(facts: ProbeFacts) -> list[Check]:
    """Return the checks of a probe whose instances were launched and have not reported."""
    market, ids = facts.market.value, first_few(facts.launched, _SHOWN)
    detail = f"{ids}: no agent has reported"
    if facts.waits_because:
        detail += f"; {facts.waits_because}"
    fix = (
        "read the instance's console output in the cloud: its agent needs the metadata service, DNS and the control "
        "bucket. It is ended at limits.bootDeadline"
    )
    return [
        Check("capacity", f"{market}: launch", Verdict.OK, ids),
        Check("cluster", f"{market}: agent", Verdict.FAIL, detail, fix),
    ]


def _launch_check(facts: ProbeFacts) -> Check:
    name, instance = f"{facts.market.value}: launch", facts.instance
    if instance is None:
        reasons = facts.refusals or ((facts.waits_because,) if facts.waits_because else (facts.failure,))
        fix = _launch_fix(facts)
        detail = "; ".join(reasons) or "no instance came in time"
        return Check("capacity", name, Verdict.FAIL, detail, fix)
    label = f"{instance.instance_id}, {instance.instance_type} in {instance.zone}"
    if instance.market is not facts.market:
        detail = f"not proven: {facts.job_id} ran on a free {instance.market.value} instance, {label}"
        return Check("capacity", name, Verdict.WARN, detail, "probe again while no instance of the cluster is idle")
    return Check("capacity", name, Verdict.OK, label)


_LAUNCH_FIXES = {
    LaunchTrouble.CREDENTIALS: "the scheduler's role or a policy of the organization denies it: pulumi up, and look "
    "for a denial there",
    LaunchTrouble.REQUEST: "correct the setting that the refusal names (image, volume, key or network), then pulumi up",
    LaunchTrouble.QUOTA: "request more of the quota: everspot doctor names it and the page for it",
    LaunchTrouble.PRICE: "raise capacity.maxPrice, or leave it out",
    LaunchTrouble.CAPACITY: "add types and zones to capacity, or probe again later: the cloud has none of these now",
}
"""What to do about a refused launch, by the kind of refusal. Refusals that only a person can resolve come first."""


def _launch_fix(facts: ProbeFacts) -> str:
    own = (fix for trouble, fix in _LAUNCH_FIXES.items() if trouble in facts.troubles)
    return next(own, "everspot doctor and everspot fleet say more: capacity, quotas, and whether a scheduler runs")


def _run_checks(facts: ProbeFacts) -> list[Check]:
    """Return the checks of a probe that has had an instance: lease, results, and GPUs."""
    market = facts.market.value
    if facts.state is not JobState.SUCCEEDED:
        detail = f"{facts.job_id} is {facts.state.value}: {facts.failure or 'it has not ended in time'}"
        name = f"{market}: CUDA" if facts.gpus and facts.failure else f"{market}: job"
        return [Check("cluster", name, Verdict.FAIL, detail, f"everspot logs {facts.job_id}")]
    checks = [Check("cluster", f"{market}: lease", Verdict.OK, "the job was assigned, renewed its lease and ended")]
    if facts.report is None:
        detail = f"{facts.job_id} has succeeded, and its outputs have not arrived in the data bucket"
        return [*checks, Check("store", f"{market}: store", Verdict.FAIL, detail, f"everspot logs {facts.job_id}")]
    report = facts.report
    detail = f"outputs arrived: Python {report.get('python')}, torch {report.get('torch')}"
    return [*checks, Check("store", f"{market}: store", Verdict.OK, detail), *_cuda_check(facts, report)]


def _cuda_check(facts: ProbeFacts, report: Mapping[str, object]) -> list[Check]:
    if not facts.gpus:
        return []
    name, difference = f"{facts.market.value}: CUDA", report.get("difference")
    label = f"{report.get('gpu')} of compute capability {report.get('capability')}"
    if isinstance(difference, float) and difference < _TOLERANCE:
        return [Check("cluster", name, Verdict.OK, f"a compiled function is right on {label}")]
    detail = f"a compiled function is wrong on {label}: relative difference {difference}"
    return [Check("cluster", name, Verdict.FAIL, detail, "bake the image again: its torch does not fit this GPU")]
