"""A job's use of its machine, as rows for the terminal and the web UI, and as JSON."""

from collections.abc import Iterable, Sequence
from typing import Any

from everspot_core.capacity.catalogue import Catalogue, zone_region
from everspot_core.costs.attempts import attempts
from everspot_core.counting import size
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.machine_review import MachineReview, job_use, review_machine
from everspot_core.jobs.records import Event, JobRecord
from everspot_core.jobs.utilization import Utilization

from everspot_cli.tables import money

_RATES = (
    "busy_vcpus", "cpu_share", "io_wait_share", "gpu_share", "gpu_memory_share", "gpu_watts", "step_seconds",
    "data_wait_share",
)  # fmt: skip


def use_document(use: Utilization | None) -> dict[str, Any] | None:
    """Return the totals and the rates for `--json`; None if nothing was measured."""
    if use is None:
        return None
    rates = {name: getattr(use, name) for name in _RATES}
    return {**use.model_dump(mode="json"), **rates}


def use_rows(use: Utilization) -> list[tuple[str, str]]:
    """Return names and values of what was measured, in display order."""
    rows = [
        ("GPUs", _percent(use.gpu_share)),
        ("GPU memory", _describe_part(use.gpu_memory_gib, use.gpu_memory_total_gib, "GiB at most")),
        ("GPU power", f"{use.gpu_watts:.0f} W" if use.gpu_watts is not None else ""),
        ("GPU temperature", f"{use.gpu_celsius:.0f} °C at most" if use.gpu_celsius is not None else ""),
        ("GPU errors", describe_gpu_errors(use)),
        ("processors", _describe_part(use.busy_vcpus, use.vcpus, "busy")),
        ("memory", f"{use.memory_gib:.2f} GiB at most" if use.memory_gib is not None else ""),
        ("disk", _flow(use, use.read_bytes, "read", use.written_bytes, "written")),
        ("waits for disks", _percent(use.io_wait_share)),
        ("network", _flow(use, use.received_bytes, "received", use.sent_bytes, "sent")),
        ("step", f"{use.step_seconds:.3g} s" if use.step_seconds is not None else ""),
        ("waits for data", _percent(use.data_wait_share)),
    ]
    return [(name, value) for name, value in rows if value]


def describe_gpu_errors(use: Utilization) -> str:
    """Return the uncorrected memory errors and Xids of its GPUs. Empty without any."""
    errors = [f"{use.ecc_errors:.0f} uncorrected memory errors"] if use.ecc_errors else []
    return ", ".join([*errors, *(f"Xid {number}" for number in use.xids)])


def review_job(
    submission: JobSubmission, record: JobRecord | None, events: Sequence[Event], catalogue: Catalogue
) -> tuple[Utilization | None, MachineReview | None]:
    """Return what a job used in all its attempts, and the judgement of it; None for what is not known."""
    use = job_use(record, events)
    if use is None:
        return None, None
    history = attempts(events)
    name, zone = (history[-1].instance_type, history[-1].zone) if history else (None, None)
    try:
        region = zone_region(zone or "")
    except ValueError:
        name, region = None, ""
    kind = catalogue.types.get(name or "")
    return use, review_machine(use, submission.spec.resources, kind, catalogue, region)


def review_rows(use: Utilization | None, review: MachineReview | None) -> list[tuple[str, str]]:
    """Return the section "how the machine was used": figures, judgement and changes. Empty if nothing was measured."""
    if use is None:
        return []
    rows = use_rows(use)
    if review is not None:
        rows.append(("used well", f"{'yes' if review.bottleneck == 'none' else 'no'}: {review.reason}"))
        rows += [("would help", str(change)) for change in review.changes]
    return rows


def review_document(use: Utilization | None, review: MachineReview | None) -> dict[str, Any] | None:
    """Return the section for `--json`; None if nothing was measured."""
    document = use_document(use)
    if document is None:
        return None
    judgement: dict[str, Any] = {"bottleneck": None, "reason": None, "changes": []}
    if review is not None:
        changes = [str(change) for change in review.changes]
        judgement = {"bottleneck": review.bottleneck.value, "reason": review.reason, "changes": changes}
    return {**document, **judgement}


MACHINE_COLUMNS = ("job", "bottleneck", "would help", "GPUs", "processors", "waits for data", "wasted")


def machine_cells(jobs: Iterable[dict[str, Any]]) -> list[list[str]]:
    """Return a row for each job of a report that was measured: how it used its machines, and what would help."""
    return [
        [
            job["job_id"],
            machine["bottleneck"] or "—",
            "; ".join(machine["changes"]) or "—",
            *(_percent(machine[name]) or "—" for name in ("gpu_share", "cpu_share", "data_wait_share")),
            money(machine["wasted_gpu_usd"]),
        ]
        for job in jobs
        if (machine := job["machine"]) is not None
    ]


def _percent(share: float | None) -> str:
    return f"{share:.0%}" if share is not None else ""


def _describe_part(part: float | None, whole: float | None, words: str) -> str:
    if part is None:
        return ""
    return f"{part:.1f} of {whole:g} {words}" if whole else f"{part:.1f} {words}"


def _flow(use: Utilization, inward: float | None, in_words: str, outward: float | None, out_words: str) -> str:
    pairs = ((use.per_second(inward), in_words), (use.per_second(outward), out_words))
    return ", ".join(f"{size(round(rate))}/s {words}" for rate, words in pairs if rate is not None)
