"""The checks that a job passes before it is submitted, each a function of its `SubmissionContext`.

A check returns warnings, or raises one `CliError` that names each field that the cluster refuses. `CHECKS` is the order
in which the command reports them.
"""

import re
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from everspot_core.capacity.catalogue import InstanceType
from everspot_core.counting import counted, first_few
from everspot_core.jobs.candidates import misfits
from everspot_core.jobs.image_reference import parse_registry_image
from everspot_core.jobs.internet import services_used
from everspot_core.validation.problems import near

from everspot_cli.commands.submit.context import ClusterFacts, SubmissionContext
from everspot_cli.commands.submit.deadline import deadline_warnings, refuse_too_early
from everspot_cli.commands.submit.notice_fit import fit_notice
from everspot_cli.commands.submit.other_clusters import able_peers
from everspot_cli.dependencies import resolve_dependencies, unknown_last_jobs
from everspot_cli.errors import CliError, run_rules
from everspot_cli.job_inputs import refuse_missing

WAIT_HINT = "; or let the job wait until there is one: --wait-for-capacity"
"""The way out that only `submit` and `retry` offer."""
THREADS = "OMP_NUM_THREADS"
SUFFIXES = frozenset({".py", ".pyi", ".sh", ".bash", ".ipynb", ".yaml", ".yml", ".toml", ".json", ".cfg", ".ini"})
"""Files that may say where a program writes its checkpoints: code, scripts and settings."""
MOST_BYTES = 1 << 20
"""The most of one file that is read."""
MOST_FILES = 5000
_EVIDENCE = re.compile(rb"\bcheckpoints\b|EVERSPOT_CHECKPOINT_DIR|\beverspot_train\b")
_SHOWN = 5

Check = Callable[[SubmissionContext], list[str]]
"""Returns warnings about a job. Raises `CliError`, with a problem for each field, to refuse the job."""
ClusterCheck = Callable[[SubmissionContext, ClusterFacts], list[str]]
"""A check of a job against the cluster's documents."""


def run_checks(context: SubmissionContext) -> tuple[list[str], CliError | None]:
    """Run every check.

    Returns:
        All warnings, and one error with all refused fields, or None.

    Raises:
        CliError: for an error that is not about a field of the job.
    """
    return run_rules(context.subject, [partial(check, context) for check in CHECKS])


def check_threads(context: SubmissionContext) -> list[str]:
    """Warn of a job with more threads or processes than vCPUs: they take turns and wait for each other."""
    spec = context.submission.spec
    threads, vcpus = spec.env.get(THREADS), spec.resources.vcpus
    if spec.process_count > vcpus and spec.processes is not None:
        return [
            f"processes: {spec.processes} are more than the {counted(vcpus, 'vCPU')} that the job asks for: they take "
            "turns, and each waits for the others at every step"
        ]
    if threads is None or not threads.isdecimal() or int(threads) * spec.process_count <= vcpus:
        return []
    each = f" in each of {spec.process_count} processes" if spec.process_count > 1 else ""
    return [
        f"{THREADS}={threads}{each} is more than the {counted(vcpus, 'vCPU')} that the job asks for: threads that wait "
        "for each other make it many times slower. Without the variable it gets as many threads as resources.vcpus, "
        "shared among its processes"
    ]


def check_checkpoints(context: SubmissionContext) -> list[str]:
    """Warn if nothing in the job mentions what is kept: the folder `checkpoints`, or the trainer library.

    Such a job would restart from zero after each interruption. The text of the code decides, not a run of it. So the
    warning may be wrong where the name is put together at run time or comes from an installed package; a job without a
    folder of code is not judged.
    """
    spec = context.submission.spec
    if spec.entrypoint is None or spec.code is None:
        return []
    spec_text = " ".join([*spec.entrypoint, *spec.env, *spec.env.values(), *spec.setup]).encode()
    if _EVIDENCE.search(spec_text) or _mentions_checkpoints(Path(spec.code)):
        return []
    allowed = spec.retries.from_zero
    consequence = f"the program restarts from zero, {counted(allowed, 'time')} at most" if allowed else "the job fails"
    return [
        "nothing in the code mentions the folder checkpoints or the trainer library: after an interruption "
        f"{consequence} (retries.from_zero). Write its state into checkpoints/ "
        "(EVERSPOT_CHECKPOINT_DIR names it) and load it at the start, or use everspot_train: docs/guide/training.md"
    ]


def _mentions_checkpoints(folder: Path) -> bool:
    files = (path for path in sorted(folder.rglob("*")) if path.suffix in SUFFIXES)
    for number, path in enumerate(files):
        if number >= MOST_FILES:
            return True  # too much to be sure of anything
        try:
            if not path.is_file():
                continue
            with path.open("rb") as file:
                if _EVIDENCE.search(file.read(MOST_BYTES)):
                    return True
        except OSError:
            continue
    return False


def check_requirements(context: SubmissionContext) -> list[str]:
    """Warn of required packages that the image has: its versions are used. Refuse a file that is no lock file."""
    submission = context.submission
    if submission.spec.requirements is None or submission.wheels:  # another attempt gets what the first one got
        return []
    from everspot_cli.wheels import read_lock_file

    _, image_packages = read_lock_file(Path(submission.spec.requirements))
    if not image_packages:
        return []
    return [f"requirements: {', '.join(sorted(image_packages))}: the image's own versions are used instead"]


def check_notice(context: SubmissionContext) -> list[str]:
    """Warn of a job whose checkpoints do not fit into the notice on a type that it may run on, if it declares their
    size."""
    return list(fit_notice(context).warnings)


def check_sharing(context: SubmissionContext, cluster: ClusterFacts) -> list[str]:
    """Warn of a job that may share an instance, on a cluster without shared instances."""
    if not context.submission.spec.resources.shared or cluster.manifest.shared_instances:
        return []
    return [
        f"resources.shared does nothing here: instances of the cluster {cluster.manifest.cluster} are not shared "
        "(its setting sharedInstances). The job has an instance alone and pays all of it"
    ]


def check_internet(context: SubmissionContext, cluster: ClusterFacts) -> list[str]:
    """Warn of secrets of services on the internet, on a cluster whose jobs do not reach it."""
    manifest = cluster.manifest
    if manifest.internet is not False or manifest.proxy is not None:
        return []
    return [
        f"secrets.{variable}: jobs of {manifest.cluster} do not reach {service.name} ({service.host}), nor anything "
        "else on the internet: the program hangs or fails where it calls it. `nat: true` in the stack's settings is a "
        "way out, which costs money by the hour"
        + (f", or, without one, set env {service.offline_setting}" if service.offline_setting else "")
        for variable, service in services_used(context.submission.spec)
    ]


def check_image(context: SubmissionContext, cluster: ClusterFacts) -> list[str]:
    """Refuse a job with an image of its own on a cluster whose instances make no containers, or none with GPUs.

    Raises:
        CliError: if the job has one there.
    """
    spec, job_images = context.submission.spec, cluster.manifest.job_images
    name = cluster.manifest.cluster
    if spec.image is not None and job_images and spec.resources.gpus:
        raise CliError(
            f"{context.subject}: {name} gives the image of a job's own no GPUs",
            hint="leave out image: use requirements and setup, or build your packages into the cluster's image (the "
            "setting image), or leave out resources.gpus",
            problems=[{"field": "image", "problem": f"jobs of {name} run in pods, which have no CDI specification"}],
        )
    if spec.image is None or job_images is not False:
        return []
    problem = f"jobs of {name} run in the image of its pods, which may not make containers"
    raise CliError(
        f"{context.subject}: {name} runs no image of a job's own",
        hint="set jobImages: true in the stack's settings and run pulumi up, or leave out image: use requirements and "
        "setup, or build your packages into the cluster's own image (the setting image)",
        problems=[{"field": "image", "problem": problem}],
    )


def check_registry(context: SubmissionContext, cluster: ClusterFacts) -> list[str]:
    """Refuse a job whose image is in a repository from which the cluster's instances may not fetch it.

    Raises:
        CliError: if it is.
    """
    image, repositories = parse_registry_image(context.submission.spec.image), cluster.manifest.image_repositories or []
    if image is None or image.is_in(repositories):
        return []
    name = cluster.manifest.cluster
    allowed = ", ".join(repositories) or "no repository"
    raise CliError(
        f"{context.subject}: instances of {name} may not fetch the image",
        hint="name the repository in imageRepositories of the stack's settings and run pulumi up, or upload the image: "
        "everspot data put",
        problems=[{"field": "image", "problem": f"{image.name}: {name} allows {allowed}"}],
    )


def check_capacity(context: SubmissionContext, cluster: ClusterFacts) -> list[str]:
    """Refuse a job that no instance type can hold, of the cluster or of a peer that the job may visit.

    Returns:
        A warning if only a peer can hold it.

    Raises:
        CliError: if no type can hold it, and the user does not insist on waiting for one.
    """
    resources, fleet = context.submission.spec.resources, cluster.fleet
    if fleet is None or context.wait_for_capacity or any(not misfits(kind, resources) for kind in fleet.kinds):
        return []
    name = cluster.manifest.cluster
    able = able_peers(context.session, context.submission)
    if able:
        return [f"no instance type of {name} can hold the job: it waits for {', '.join(able)}"]
    closest = sorted(fleet.kinds, key=lambda kind: (len(misfits(kind, resources)), -kind.vcpus, kind.name))
    lacks, has = (
        first_few([describe(kind) for kind in closest], _SHOWN, between="; ", remainder_phrase="; and {} more types")
        for describe in (lambda kind: f"{kind.name} has {', '.join(misfits(kind, resources))}", _describe_type)
    )
    subject = "the fleet's types" if fleet.declared else "the instances that have reported"
    raise CliError(
        f"{context.subject}: nothing that the cluster {name} has can hold this job",
        hint=f"{subject}: {has}. Ask for less, or add a type that holds it to the fleet{WAIT_HINT}",
        problems=[{"field": "resources", "problem": lacks or "the fleet has no types"}],
    )


def _describe_type(kind: InstanceType) -> str:
    gpus = f", {kind.gpus} {kind.gpu} of {kind.gpu_memory_gib:g} GiB" if kind.gpus else ""
    return f"{kind.name} ({kind.vcpus} vCPUs, {kind.memory_gib:g} GiB{gpus})"


def check_prices(context: SubmissionContext, cluster: ClusterFacts) -> list[str]:
    """Warn of types that could hold the job, but have no known price.

    Raises:
        CliError: if the job has a budget in dollars, which could not be kept there.
    """
    fleet, region, spec = cluster.fleet, cluster.manifest.region, context.submission.spec
    if fleet is None or not fleet.declared:
        return []
    fitting = [kind.name for kind in fleet.kinds if not misfits(kind, spec.resources)]
    unpriced = [name for name in fitting if context.catalogue.on_demand(name, region) is None]
    if not unpriced:
        return []
    words = f"no on-demand price is known in {region or 'this region'} for {', '.join(unpriced)}"
    ways = (
        "`everspot cost prices refresh` reads it, or declare onDemandUsdPerHour with the type in the stack's settings"
    )
    if spec.budget.dollars is None:
        return [f"{words}: the job's cost there is unknown; {ways}"]
    raise CliError(
        f"{context.subject}: a budget in dollars needs prices",
        hint=ways,
        problems=[{"field": "budget.dollars", "problem": f"{words}, which the job could run on"}],
    )


def check_datasets(context: SubmissionContext, cluster: ClusterFacts) -> list[str]:
    """Refuse a job whose datasets the cluster does not have."""
    refuse_missing(cluster.session, context.subject, context.submission)
    return []


def check_dependencies(context: SubmissionContext, cluster: ClusterFacts) -> list[str]:
    """Refuse a job that is to run after jobs that the cluster does not have, and warn of a `run_if` that compares with
    a job that was never submitted: such a comparison holds, also where only the name is misspelt."""
    resolve_dependencies(cluster.session, context.subject, context.submission)
    return [
        f"run_if: no job {ref.job} has been submitted so far{near(ref.job, names)}: until one has succeeded, "
        f"the comparison with {ref} holds"
        for ref, names in unknown_last_jobs(cluster.session, context.submission.spec)
    ]


def check_migration(context: SubmissionContext, cluster: ClusterFacts) -> list[str]:
    """Warn of a job that may move, in a cluster without peers.

    Raises:
        CliError: if it names clouds or clusters that no peer has, or lacks the cloud that it is submitted to.
    """
    spec, manifest = context.submission.spec, cluster.manifest
    if not spec.clouds and not spec.clusters:
        return []
    if not manifest.federation:
        field = "clouds" if spec.clouds else "clusters"
        return [f"{field} does nothing here: the cluster {manifest.cluster} has no peers, so the job stays in it"]
    clouds = sorted({manifest.cloud, *(peer.cloud for peer in manifest.federation)})
    names = sorted(peer.name for peer in manifest.federation)
    problems = [
        *_unknown("clouds", spec.clouds, clouds, "the cloud of neither this cluster nor a peer"),
        *_unknown("clusters", spec.clusters, names, "no peer of this cluster"),
    ]
    if spec.clouds and manifest.cloud not in spec.clouds:
        words = f"lacks {manifest.cloud}, where the job is submitted and begins"
        problems.append({"field": "clouds", "problem": words})
    if problems:
        raise CliError(
            f"{context.subject}: the job cannot move as it says",
            hint="`everspot federation` shows the peers; without clouds and clusters a job stays where it is",
            problems=problems,
        )
    return []


def _unknown(field: str, names: Collection[str], allowed: Collection[str], complaint: str) -> list[dict[str, str]]:
    return [
        {"field": field, "problem": f"{name} is {complaint}{near(name, allowed)}; allowed: {', '.join(allowed)}"}
        for name in names
        if name not in allowed
    ]


def check_deadline(context: SubmissionContext) -> list[str]:
    """Warn of a deadline that nobody can judge, and refuse one that cannot be kept."""
    force = context.submission.forced
    refuse_too_early(context.subject, context.feasibility, force=force)
    return deadline_warnings(context.feasibility, force=force)


def _where_chosen(check: ClusterCheck) -> Check:
    """Return the check as one that passes where no cluster is chosen."""
    return lambda context: check(context, context.cluster) if context.cluster is not None else []


CHECKS: tuple[Check, ...] = (
    check_threads,
    check_checkpoints,
    check_requirements,
    check_notice,
    _where_chosen(check_sharing),
    _where_chosen(check_internet),
    _where_chosen(check_image),
    _where_chosen(check_registry),
    _where_chosen(check_capacity),
    _where_chosen(check_prices),
    _where_chosen(check_datasets),
    _where_chosen(check_dependencies),
    _where_chosen(check_migration),
    # Last: where nothing but the deadline is refused, a dry run still shows what the job could run on.
    check_deadline,
)
"""Every check of a job, in the order of its warnings and of the fields of a refusal."""
