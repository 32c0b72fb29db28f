"""Requests a profile of a running job, and waits for it."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from everspot_core.documents import format_duration
from everspot_core.jobs.profile import (
    Profile,
    ProfileRequest,
    ProfileState,
    describe_lost_profile,
    refuse_profile,
)

from everspot_cli.errors import CliError
from everspot_cli.job_lookup import read_record
from everspot_cli.requests import user
from everspot_cli.session import Session

POLL = timedelta(seconds=2)


def profile_job(session: Session, job_id: str, steps: int, limit: timedelta, show: Callable[[str], None]) -> Profile:
    """Return a profile of some steps of a running job. `show` is called with what it waits for.

    Raises:
        CliError: if the job does not run, somebody profiles it, it cannot be profiled, it is interrupted meanwhile, or
            `limit` has passed.
    """
    record = read_record(session, job_id)
    refusal = refuse_profile(job_id, record)
    if refusal is not None or record is None:
        raise CliError(refusal or "", hint=f"`everspot job {job_id}` shows its state")
    with _requested(session, job_id, record.epoch, steps, limit) as request:
        return _wait(session, job_id, request, limit, show)


@contextmanager
def _requested(session: Session, job_id: str, epoch: int, steps: int, limit: timedelta) -> Iterator[ProfileRequest]:
    """Write the request, and take it back in the end."""
    from everspot_store import StoreError

    store, now = session.store, session.now
    request = ProfileRequest(
        id=secrets.token_hex(4), epoch=epoch, steps=steps, at=now, by=user(),
        valid_until=now + session.clock.to_market(limit),
    )  # fmt: skip
    standing = store.profile_requests.get(job_id)
    if standing is None:
        written = store.profile_requests.create(job_id, request)
    else:
        earlier = standing.value
        if earlier.epoch == epoch and earlier.valid_until > now and not _final_profile(session, job_id, earlier):
            raise _busy_error(job_id, earlier)
        written = store.profile_requests.replace(job_id, standing, request)
    if written is None:
        other = store.profile_requests.get(job_id)
        raise _busy_error(job_id, other.value if other is not None else None)
    try:
        yield request
    finally:
        with suppress(StoreError):  # then it expires
            stored = store.profile_requests.get(job_id)
            if stored is not None and stored.value.id == request.id:  # after its time another user may have replaced it
                store.profile_requests.delete(job_id)
                store.following.end(job_id)


def _busy_error(job_id: str, earlier: ProfileRequest | None) -> CliError:
    by = f" by {earlier.by}" if earlier is not None and earlier.by else ""
    return CliError(f"{job_id} is being profiled already{by}", hint="wait for that, and run the command again")


def _final_profile(session: Session, job_id: str, request: ProfileRequest) -> Profile | None:
    profiles = session.store.read_profiles(job_id, request.id)
    return next((profile for profile in profiles if profile.state.final), None)


def _wait(
    session: Session, job_id: str, request: ProfileRequest, limit: timedelta, show: Callable[[str], None]
) -> Profile:
    began, step, is_recording = session.clock.monotonic(), None, False
    show("waits for the instance, which looks for requests every 30 s")
    while True:
        session.store.following.renew(job_id, user())
        # The record is read first: what an attempt reported before it ended is then surely among what is read.
        record = read_record(session, job_id)
        profiles = session.store.read_profiles(job_id, request.id)
        for profile in profiles:
            if profile.state is ProfileState.DONE:
                return profile
            if profile.state in (ProfileState.REFUSED, ProfileState.FAILED):  # why one is cut off follows from the job
                raise CliError(_describe_failure(job_id, profile))
        if profiles and not is_recording:
            is_recording = True
            show(f"records {request.steps} steps from step {profiles[-1].first_step}")
        lost = describe_lost_profile(request, job_id, record)
        if lost is not None:
            raise CliError(lost)
        step = record.progress.step if record is not None else step
        if session.clock.monotonic() - began >= limit:
            raise CliError(
                f"no profile of {job_id} within {format_duration(limit)}: it is at step {step}",
                hint="does it make steps? `everspot logs` shows what it prints; --timeout waits longer",
            )
        session.clock.sleep(POLL)


def _describe_failure(job_id: str, profile: Profile) -> str:
    if profile.state is ProfileState.REFUSED:
        return f"{job_id} cannot be profiled: {profile.message}"
    return f"{job_id} was not profiled, and trains on: {profile.message}"
