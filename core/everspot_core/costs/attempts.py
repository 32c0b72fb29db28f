"""The history of a job, derived from its events: which instance held it when, what interrupted it, and how much time
that cost.

Definitions, used by report and budget alike:

- An *attempt* is one ownership (one epoch): from its assignment to its release, which is the first of interrupted,
  lost, error, finished, failed or cancelled; without any, the next assignment, or the release by the job's record: an
  agent may end without having written its last event. Where the owner's agent was restarted
  and took the job up again under the same epoch, the time before the restart is an attempt of its own, which was
  lost. A loss that was taken back, because the owner lived and renewed its lease, does not count.
- An *interruption* is an attempt that ended without the job's own doing (`Reason.preemption`).
- *Steps redone* by it: the last step that the attempt is known to have done, minus the step that the next training
  resumed from. An attempt that never trained has done no steps, even if its job's record still shows those of the
  attempt before. An agent reports progress with each renewal of the lease. So an attempt that ended without a last
  report has done *at least* the reported steps, and perhaps more.
  A program that reports no steps has none to redo; its time counts.
- *Time redone* after it: from the moment when the work that survived was durable until the attempt's end, if it
  trained. A program that kept nothing redoes all of the attempt; one that kept its state after the notice, nothing.
- *Time lost* by it: from the notice (or, without one, from the moment when the work that survived was durable) until
  training runs again, the job departs to a cluster in which it gets instances, or the job ends. Spans that overlap
  are counted once. What a job loses in another cluster is in the report there.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from itertools import pairwise, zip_longest
from typing import Any

from everspot_core.capacity.market import Market, PoolKey
from everspot_core.costs.prices import seconds_between
from everspot_core.jobs.events import STOP_TRIGGER
from everspot_core.jobs.records import Event, EventKind, JobRecord, Reason
from everspot_core.jobs.reported_values import MOST_SECONDS, parse_count, parse_number
from everspot_core.jobs.visit_records import TripEnd

_FINAL = {EventKind.FINISHED, EventKind.FAILED, EventKind.CANCELLED}
_RELEASE = _FINAL | {EventKind.INTERRUPTED, EventKind.LOST, EventKind.ERROR}
_ENDS_AS = {
    EventKind.FINISHED: Reason.FINISHED,
    EventKind.LOST: Reason.LOST,
    EventKind.ERROR: Reason.ERROR,
    EventKind.CANCELLED: Reason.CANCEL,
    EventKind.FAILED: Reason.ERROR,
    EventKind.INTERRUPTED: Reason.SHUTDOWN,
}


@dataclass(frozen=True)
class Attempt:
    """One ownership of a job. Steps are counts of optimizer steps done; moments are market time."""

    job_id: str
    epoch: int
    instance_id: str | None
    instance_type: str | None
    zone: str | None
    market: str | None
    start: datetime
    end: datetime | None = None
    reason: Reason | None = None
    training_at: datetime | None = None
    reports: bool = True  # whether its program reports its steps
    from_step: int | None = None
    last_step: int | None = None
    last_step_is_final: bool = False  # whether the agent reported it at the end; otherwise it is the last reported step
    durable_at: datetime | None = None
    notice_at: datetime | None = None
    notice_source: str | None = None
    notice_to_durable_seconds: float | None = None
    share: Fraction = Fraction(1)  # of the instance's cost; less than 1 where others share it
    gpus: int | None = None  # those of its seat; None: all of the instance
    departed_at: datetime | None = None  # when the job left for another cluster before its next attempt here

    @property
    def pool(self) -> PoolKey | None:
        """The type, zone and market of its instance; None if one of them is not known. An event may tell anything."""
        if not (self.instance_type and self.zone) or self.market not in set(Market):
            return None
        return PoolKey(self.instance_type, self.zone, Market(self.market))

    @property
    def interrupted(self) -> bool:
        """Whether it ended because the job lost its instance."""
        return self.reason is not None and self.reason.preemption

    @property
    def lost_from(self) -> datetime:
        """The moment from which on this attempt's time was lost through its interruption."""
        if self.training_at is None:
            return self.start
        survived = self.durable_at or self.training_at
        return self.notice_at if self.notice_at and survived >= self.notice_at else survived


@dataclass(frozen=True)
class Interruption:
    """The loss of a job's instance. `resumed_*` are None until the job trains again, and if it departed before."""

    attempt: Attempt
    resumed_at: datetime | None
    resumed_step: int | None
    resumed_on: str | None
    departed_at: datetime | None = None

    @property
    def with_notice(self) -> bool:
        """Whether the cloud or a request gave the owner notice, whether or not a checkpoint came of it."""
        return self.attempt.notice_at is not None

    @property
    def kind(self) -> str:
        """`lost` if the loss came without notice; otherwise the kind of notice: notice, drill, drain or shutdown."""
        reason = self.attempt.reason
        if reason is None or reason in (Reason.LOST, Reason.FENCED):
            return "notice" if self.with_notice else "lost"
        return reason.value

    @property
    def steps_redone(self) -> int | None:
        """See the module's definitions. None until the job trains again."""
        if self.resumed_step is None or not self.attempt.reports:
            return None
        return max(0, (self.attempt.last_step or 0) - self.resumed_step)

    @property
    def steps_redone_is_least(self) -> bool:
        """Whether the true count may be higher, because the last report came before the attempt's end."""
        attempt = self.attempt
        trained = attempt.training_at is not None and attempt.reports
        return self.resumed_step is not None and trained and not attempt.last_step_is_final

    @property
    def seconds_redone(self) -> float | None:
        """See the module's definitions. None until the job trains again."""
        attempt = self.attempt
        if self.resumed_at is None:
            return None
        if attempt.training_at is None or attempt.end is None or self.steps_redone == 0:
            return 0.0
        durable, notice = attempt.durable_at, attempt.notice_at
        if durable is not None and notice is not None and durable >= notice:
            return 0.0  # that checkpoint was its last work
        since = max(durable or attempt.training_at, attempt.training_at)
        return max(0.0, float(seconds_between(since, attempt.end)))

    @property
    def changeover_seconds(self) -> float | None:
        """Seconds from the release until the job trains again. None until then."""
        if self.resumed_at is None or self.attempt.end is None:
            return None
        # The clocks of two machines differ, so a time shortly before the release counts as zero seconds.
        return max(0.0, float(seconds_between(self.attempt.end, self.resumed_at)))


def attempts(
    events: Iterable[Event], reported: Mapping[int, int] | None = None, *, record: JobRecord | None = None
) -> list[Attempt]:
    """Return the ownerships of one job, oldest first.

    Args:
        events: All events of the job, in any order.
        reported: Last step that was seen by epoch, from elsewhere (metrics), where events may know less.
        record: The job's record. The event of the last release may come later than the record, or never.
    """
    ordered = sorted(events, key=lambda e: (e.at, e.epoch, e.writer, e.seq))
    by_epoch: dict[int, list[Event]] = defaultdict(list)
    for event in ordered:
        if event.epoch > 0:
            by_epoch[event.epoch].append(event)
    final = _final_event(ordered)
    epochs = [e for e in sorted(by_epoch) if _first(by_epoch[e], EventKind.ASSIGNED, EventKind.STARTED) is not None]
    history = []
    for epoch, following in zip_longest(epochs, epochs[1:]):
        successor = _first(by_epoch[following], EventKind.ASSIGNED, EventKind.STARTED) if following else None
        *earlier, last = _lives(by_epoch[epoch])
        assigned = _first(by_epoch[epoch], EventKind.ASSIGNED)
        for life, next_life in pairwise([*earlier, last]):
            before = parse_count(next_life[0].data.get("step_before")) or 0
            history.append(_attempt(life, assigned, next_life[0], None, before))
        history.append(_attempt(last, assigned, successor, final, (reported or {}).get(epoch, 0)))
    if history and record is not None:
        history[-1] = _ended_by_record(history[-1], record)
    return _with_departures(history, _departures(ordered))


def _departures(events: Sequence[Event]) -> list[datetime]:
    """Return when the job left for a cluster in which it got instances, or may have got some."""
    idle_visits = {
        event.data.get("visit")
        for event in events
        if event.kind is EventKind.RETURNED
        and (event.data.get("end") in (TripEnd.REFUSED, TripEnd.WITHDRAWN) or event.data.get("usd") == 0)
    }
    return [e.at for e in events if e.kind is EventKind.DEPARTED and e.data.get("visit") not in idle_visits]


def _with_departures(history: list[Attempt], departures: Sequence[datetime]) -> list[Attempt]:
    """Return the attempts with the first departure after each, before the next attempt."""
    if not departures or not history:
        return history
    following = [*(attempt.start for attempt in history[1:]), None]
    return [
        replace(attempt, departed_at=next((d for d in departures if attempt.start < d and (not end or d <= end)), None))
        for attempt, end in zip(history, following, strict=True)
    ]


def _ended_by_record(attempt: Attempt, record: JobRecord) -> Attempt:
    """Return the last attempt with its end. If no event names the end, the job's record does."""
    if attempt.end is not None or record.state.owned or record.epoch < attempt.epoch:
        return attempt
    reason = record.last_reason if attempt.training_at is not None else None
    return replace(attempt, end=max(attempt.start, record.changed_at), reason=reason)


def _lives(events: Sequence[Event]) -> list[list[Event]]:
    """Return the events of one ownership, split where a restarted agent took the job up `again`."""
    lives: list[list[Event]] = [[]]
    for event in events:
        if event.kind is EventKind.STARTED and "again" in event.data and lives[-1]:
            lives.append([])
        lives[-1].append(event)
    return lives


def _first(events: Sequence[Event], *kinds: EventKind) -> Event | None:
    return next((e for e in events if e.kind in kinds), None)


def _first_training(events: Sequence[Event]) -> Event | None:
    """Return the trainer's own event if there is one; otherwise the agent's, which replaces it for programs that report
    nothing or late."""
    spoken = [e for e in events if e.kind is EventKind.TRAINING]
    return next((e for e in spoken if e.data.get("by") != "agent"), spoken[0] if spoken else None)


def _attempt(
    events: list[Event], assigned: Event | None, successor: Event | None, final: Event | None, reported: int
) -> Attempt:
    first = assigned or events[0]
    start = _first(events, EventKind.ASSIGNED, EventKind.STARTED) or events[0]
    reclaimed = max((e.at for e in events if e.data.get("reclaimed")), default=None)
    taken_back = [e for e in events if e.kind is EventKind.LOST and reclaimed is not None and e.at <= reclaimed]
    release = next((e for e in events if e.kind in _RELEASE and e not in taken_back), None)
    end, reason = (release.at, _reason(release)) if release else (None, None)
    if release is None and successor is not None:
        # A job that was given back before it was started has not been interrupted.
        end, reason = successor.at, Reason.LOST if _first(events, EventKind.STARTED, EventKind.TRAINING) else None
    elif release is None and final is not None:
        end, reason = final.at, _reason(final)
    inside = [e for e in events if end is None or e.at <= end]
    training = _first_training(inside)
    # Events of checkpoints may come after the release. All count, because a fenced owner cannot publish.
    durable = [e for e in events if e.kind is EventKind.CHECKPOINTED]
    notice = _first(inside, EventKind.STOP_DEMANDED)
    steps = [parse_count(e.data.get("step")) for e in events] + [
        parse_count(training.data.get("from_step")) if training else None
    ]
    # Without training, the step of a `lost` event is the previous attempt's.
    known_steps = [s for s in steps if s is not None] if training or durable else []
    return Attempt(
        job_id=first.job_id,
        epoch=first.epoch,
        instance_id=start.instance_id or next((e.instance_id for e in events if e.instance_id), None),
        instance_type=_text(first.data.get("instance_type")),
        zone=_text(first.data.get("zone")),
        market=_text(first.data.get("market")),
        start=start.at,
        end=end,
        reason=reason,
        training_at=training.at if training else None,
        reports=training is None or training.data.get("by") != "agent" or any(known_steps) or bool(reported),
        from_step=parse_count(training.data.get("from_step")) if training else None,
        last_step=max([reported, *known_steps]) if known_steps or reported else None,
        last_step_is_final=release is not None
        and release.kind is not EventKind.LOST
        and parse_count(release.data.get("step")) is not None,
        durable_at=durable[-1].at if durable else None,
        notice_at=_notice_time(notice) if notice else None,
        notice_source=_text(notice.data.get("source")) if notice else None,
        notice_to_durable_seconds=_notice_to_durable(release, notice, durable),
        share=_share(assigned),
        gpus=parse_count(assigned.data.get("gpus")) if assigned is not None else None,
    )


def _share(assigned: Event | None) -> Fraction:
    """Return the job's share of the instance, as the scheduler fixed it at the assignment; 1 if the event names
    none."""
    stated = assigned.data.get("share") if assigned is not None else None
    is_valid = isinstance(stated, int | float) and not isinstance(stated, bool) and 0 <= stated <= 1
    return Fraction(stated) if is_valid and isinstance(stated, int | float) else Fraction(1)


def _reason(event: Event) -> Reason:
    stated = event.data.get("reason")
    return Reason(stated) if isinstance(stated, str) and stated in set(Reason) else _ENDS_AS[event.kind]


def _notice_to_durable(release: Event | None, notice: Event | None, durable: Sequence[Event]) -> float | None:
    if release is not None and "notice_to_durable_seconds" in release.data:
        return parse_number(release.data["notice_to_durable_seconds"], -MOST_SECONDS, MOST_SECONDS)
    after = [e for e in durable if notice and e.at >= _notice_time(notice) and e.data.get("trigger") == STOP_TRIGGER]
    return float(seconds_between(_notice_time(notice), after[0].at)) if notice and after else None


def _notice_time(notice: Event) -> datetime:
    """Return when the agent received the notice. The event about it is a little later."""
    stated = notice.data.get("seen_at")
    try:
        moment = datetime.fromisoformat(stated) if isinstance(stated, str) else notice.at
        return moment.astimezone(UTC) if moment.tzinfo is not None else notice.at
    except (ValueError, OverflowError):
        return notice.at


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def interruptions(history: Sequence[Attempt]) -> list[Interruption]:
    """Return every interruption of one job, with where and when it resumed."""
    result_list = []
    for index, attempt in enumerate(history):
        if attempt.interrupted:
            resumption = next((n for n in range(index + 1, len(history)) if history[n].training_at is not None), None)
            departed_at = next((a.departed_at for a in history[index:resumption] if a.departed_at is not None), None)
            later = history[resumption] if resumption is not None and departed_at is None else None
            result_list.append(
                Interruption(
                    attempt,
                    later.training_at if later else None,
                    later.from_step if later else None,
                    later.instance_id if later else None,
                    departed_at,
                )
            )
    return result_list


def ended_at(events: Iterable[Event], record: JobRecord | None = None) -> datetime | None:
    """Return when the job ended, by its events or else by its record; None if it has not, or if it ran again after an
    event that seemed to end it."""
    last = _final_event(sorted(events, key=lambda e: e.at))
    if last is not None:
        return last.at
    return record.changed_at if record is not None and record.state.final else None


def _final_event(ordered: Sequence[Event]) -> Event | None:
    """Return the event that ended the job. Events of an owner whose lease had ended by then do not count."""
    last = next((e for e in reversed(ordered) if e.kind in _FINAL), None)
    if last is not None and any(e.kind is EventKind.ASSIGNED and e.epoch > last.epoch for e in ordered):
        return None
    return last


Span = tuple[datetime, datetime]


def lost_spans(history: Sequence[Attempt], until: datetime) -> list[Span]:
    """Return the spans that interruptions cost one job, merged, in order, ending at `until` at the latest."""
    spans: list[Span] = []
    for interruption in interruptions(history):
        start = interruption.attempt.lost_from
        end = min(interruption.departed_at or interruption.resumed_at or until, until)
        if spans and start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        elif start < end:
            spans.append((start, end))
    return spans
