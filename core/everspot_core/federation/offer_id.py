"""Checks that an offer's id and content belong to the same home.

Another home, or an earlier home of the same name, may have made an offer under the wrong id. Neither side acts on such
an offer: home takes its job back, and the host refuses.
"""

from everspot_core.federation.offer import VisitOffer
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.visit_records import Away, Origin, visit_id


def is_own_offer(offer: VisitOffer, away: Away, job: JobSubmission, home: str) -> bool:
    """Return whether an offer belongs to this job, which is away. `home`: the name of the job's home."""
    visit = offer.submission.visit
    if visit is None or offer.home != home or offer.at != away.offered_at:
        return False
    return (visit.home, visit.job_id, visit.number) == (home, job.job_id, away.number)


def misnamed(visit: str, offer: VisitOffer) -> bool:
    """Return whether an offer's id differs from the id that follows from its home, its job and the number of the
    visit."""
    job = offer.submission
    if job.visit is None or job.visit.home != offer.home or not job.job_id == offer.visit == visit:
        return True
    origin = Origin(cluster=job.visit.home, control_url=job.visit.control_url)
    return visit != visit_id(origin, job.visit.job_id, job.submitted_at, job.visit.number)
