"""Listens to a cloud's queue in a thread, which keeps the messages for the scheduler's loop."""

import logging
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from datetime import timedelta
from typing import Self

from everspot_clouds.base import Message, MessageKind, Trouble

_BACK_OFF = (timedelta(seconds=1), timedelta(seconds=30))
_log = logging.getLogger(__name__)


class QueueListener(ABC):
    """The listener of one queue. `receive` polls the queue once, and `delete` removes messages from it.

    Attributes:
        noun: What the log calls the queue.
    """

    noun: str

    def __init__(self) -> None:
        self._received: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._closed = threading.Event()
        # A daemon: nobody should wait for the end of a long poll.
        self._thread = threading.Thread(target=self._run, name="everspot-events", daemon=True)

    @abstractmethod
    def receive(self) -> None:
        """Poll once: keep messages of known kinds, delete all others. Raises the cloud's errors."""

    @abstractmethod
    def delete(self, messages: Iterable[Message]) -> None:
        """Remove messages from the queue. Raises the cloud's errors; the messages come again then, which does no
        harm."""

    @abstractmethod
    def trouble(self, error: Exception) -> Trouble:
        """Return the kind of this failure of the queue."""

    def start(self) -> Self:
        """Begin to listen."""
        self._thread.start()
        return self

    def drain(self) -> list[Message]:
        """Return the messages received since the last call, without waiting."""
        received = []
        while not self._received.empty():
            received.append(self._received.get())
        return received

    def close(self, patience: timedelta = timedelta(seconds=1)) -> None:
        """Stop listening; waits no longer than `patience` for a poll under way."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(patience.total_seconds())

    def keep(self, messages: Iterable[Message]) -> None:
        """Keep the messages that have a meaning, and delete the rest."""
        ignored = []
        for message in messages:
            if message.kind is MessageKind.IGNORED:
                ignored.append(message)
            else:
                self._received.put(message)
        self.delete(ignored)

    def wait(self, span: timedelta) -> None:
        """Wait for a while, or until it is closed."""
        self._closed.wait(span.total_seconds())

    def _run(self) -> None:
        pause = _BACK_OFF[0]
        while not self._closed.is_set():
            try:
                self.receive_in_turn()
                pause = _BACK_OFF[0]
            except Exception as error:
                if self._closed.is_set():
                    return
                loud = _log.critical if self.trouble(error) is Trouble.CREDENTIALS else _log.warning
                loud("the %s of interruption events could not be read: %s", self.noun, error)
                self.wait(pause)
                pause = min(pause * 2, _BACK_OFF[1])

    def receive_in_turn(self) -> None:
        """Poll, and rest if the queue asks for it."""
        self.receive()
