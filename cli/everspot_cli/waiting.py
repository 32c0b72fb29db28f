"""Why a job waits: what the scheduler's own policy says to the cluster as it stands in the store."""

from datetime import timedelta

from everspot_core.manifest import Limits
from everspot_core.records import InstanceRecord, InstanceState, JobState
from everspot_core.schedule import Assign, ClusterView, Hold, InstanceView, JobView, Why, plan
from everspot_core.schedule.words import because

from everspot_cli.session import Session, side_by_side
from everspot_cli.views import SILENT_AFTER, grave


def why_waiting(session: Session, job_id: str) -> str | None:
    """One sentence for a job that waits, None for any other.

    The store alone is asked: what only the cloud knows, the scheduler may judge otherwise.
    """
    view = _view(session)
    job = next((j for j in view.jobs if j.job_id == job_id), None)
    if job is None or job.state is not JobState.PENDING:
        return None
    for action in plan(view, session.now):
        if isinstance(action, Hold) and action.job_id == job_id:
            doubted = grave(session) if action.why in (Why.NOTHING_SEEN, Why.NO_FREE_INSTANCE) else ""
            return because(action) + (f"; {doubted}" if doubted else "")
        if isinstance(action, Assign) and action.job_id == job_id:
            return f"nothing: the scheduler's next tick can give it {action.instance_id}, if there is a scheduler"
    return None


def _view(session: Session) -> ClusterView:
    store, now, limits = session.store, session.now, session.manifest.limits
    jobs, held, cancels, ends, assigned, launches, instances, drain = side_by_side(
        store.jobs.scan, store.records.scan, store.cancels.names, store.ends.scan, store.assignments.scan,
        store.launches.scan, store.instances.scan, store.drain_request,
    )  # fmt: skip
    records, cancelled = {job: doc.value for job, doc in held.items()}, set(cancels)
    assignments = {i: doc.value for i, doc in assigned.items()}
    launched = {doc.value.instance_type for doc in launches.values()}
    known = {t.name for t in session.manifest.instance_types} | launched
    return ClusterView(
        jobs=tuple(
            JobView(submission=doc.value, record=records.get(job), cancel=job in cancelled) for job, doc in jobs.items()
        ),
        instances=tuple(
            InstanceView(
                instance_id=instance,
                record=doc.value,
                assignment=assignments.get(instance),
                stale=session.clock.to_real(now - doc.value.updated_at) > _silence(limits, doc.value),
                gone=instance in ends or doc.value.state.value == "GONE",
            )
            for instance, doc in instances.items()
        ),
        draining=drain is not None,
        types=tuple(session.catalogue.types[name] for name in sorted(known) if name in session.catalogue.types),
        limits=limits,
    )


def _silence(limits: Limits, record: InstanceRecord) -> timedelta:
    """After how long without a word an instance is silent."""
    return limits.beat_of(busy=record.state is InstanceState.BUSY) * SILENT_AFTER
