"""Does work for people alone, such as notes and figures, so that its failure stops nothing that a tick has yet to
record."""

import logging
from collections.abc import Callable

from everspot_store import StoreError

_log = logging.getLogger(__name__)


class BestEffort:
    """The work beside a tick. An error of the store goes on to the caller."""

    def __init__(self) -> None:
        self._doubts: dict[str, str] = {}

    def do(self, subject: str, call: Callable[[], object]) -> None:
        """Do it. An error, which stored figures that make no sense may lead to, is logged once as long as it stays the
        same. `subject`: for the log."""
        try:
            call()
        except StoreError:
            raise
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            if self._doubts.get(subject) != message:
                self._doubts[subject] = message
                _log.exception("%s cannot be told, and the tick goes on", subject)
        else:
            self._doubts.pop(subject, None)
