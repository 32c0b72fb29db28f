"""Reports the cost of a notice for a program whose folder of checkpoints cannot be uploaded within the notice."""

import logging
from datetime import timedelta

from everspot_core.clock import Clock
from everspot_core.documents import format_duration
from everspot_core.jobs.checkpoint_interval import CheckpointCost, IntervalCause, NoticeTime, describe_loss, fits_notice
from everspot_core.jobs.records import EventKind
from pydantic import JsonValue

from everspot_train.agent.outcome import EmitEvent

_log = logging.getLogger(__name__)


class FolderNoticeFit:
    """Compares each upload of a program's folder with the notice of its instance.

    Args:
        notice: from the notice to the interruption, market time.
        reserve: the part of the notice in which nothing is uploaded, real time.
        emit: writes events.
    """

    def __init__(self, notice: timedelta, reserve: timedelta, emit: EmitEvent, clock: Clock) -> None:
        self._notice = notice
        self._notice_time = NoticeTime(clock.to_real(notice), reserve)
        self._market_per_real = timedelta(seconds=1) / clock.to_real(timedelta(seconds=1))
        self._emit = emit
        self._has_fitted = True

    def note_upload(self, took: timedelta, size_bytes: int, gap: timedelta) -> None:
        """Write an event if this upload is the first in a row that does not fit into a notice, or the first that fits
        again.

        Args:
            took: the duration of the upload, real time.
            size_bytes: the uploaded bytes.
            gap: the time since the upload before, or since the program's start, real time.
        """
        cost = CheckpointCost(timedelta(0), took, size_bytes)
        fits = fits_notice(cost, self._notice_time) is True
        if fits == self._has_fitted:
            return
        self._has_fitted = fits
        saved_every = timedelta(seconds=round((gap * self._market_per_real).total_seconds()))
        data: dict[str, JsonValue] = {
            "cause": IntervalCause.CHOSEN.value,
            "reason": f"the program saved after {format_duration(saved_every)}",
        }
        if not fits:
            market_cost = cost.scaled(self._market_per_real)
            data["notice"] = describe_loss(market_cost, self._notice, gap * self._market_per_real, None)
            _log.warning("%s", data["notice"])
        self._emit(EventKind.CHECKPOINT_INTERVAL, **data)
