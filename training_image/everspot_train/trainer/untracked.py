"""Detects state that no checkpoint holds: a second DataLoader that the loop reads by hand, and hooks of DDP.

A loader for evaluation is read from its beginning to its end within one step, so nothing of it has to be restored.
"""

import functools
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch.utils.data.dataloader import _BaseDataLoaderIter

_MOST_OBJECTS = 1024  # that are looked at in one tracked object


class UntrackedLoaders:
    """The readings of DataLoaders in one loop.

    torch has no hook for a DataLoader, so the method of its iterators is replaced while the loop runs.

    Args:
        pieces: everything that is tracked, by name.
        report: called once, with the text for the first such loader.
    """

    def __init__(self, pieces: Mapping[str, Any], report: Callable[[str], None]) -> None:
        self._pieces, self._report = pieces, report
        self._step = 0
        self._reads_tracked = self._reported = False
        self._first_steps: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._original: Callable[[Any], Any] | None = None

    def begin(self) -> None:
        """The loop begins."""
        if self._original is not None:
            return
        original = self._original = _BaseDataLoaderIter.__next__

        @functools.wraps(original)
        def noting(iterator: Any) -> Any:
            batch = original(iterator)
            self._note(iterator)
            return batch

        setattr(_BaseDataLoaderIter, "__next__", noting)  # noqa: B010  torch's own method, until the loop ends

    def end(self) -> None:
        """The loop is over."""
        if self._original is not None:
            setattr(_BaseDataLoaderIter, "__next__", self._original)  # noqa: B010
            self._original = None

    @contextmanager
    def tracked_read(self, step: int) -> Iterator[None]:
        """Read the tracked loader, for the first time or after `step` steps."""
        self._step, self._reads_tracked = step, True
        try:
            yield
        finally:
            self._reads_tracked = False

    def _note(self, iterator: Any) -> None:
        if self._reads_tracked or self._reported:
            return
        begins = getattr(iterator, "_num_yielded", 0) == 1  # also an iterator that persistent workers use again
        if begins or iterator not in self._first_steps:
            self._first_steps[iterator] = self._step
        elif self._first_steps[iterator] != self._step and not self._is_tracked(iterator):
            self._reported = True
            self._report(f"a DataLoader over {type(iterator._dataset).__name__}")

    def _is_tracked(self, iterator: Any) -> bool:
        """Return whether a tracked object holds the iterator, or one of its methods reads it now."""
        pieces = {id(piece) for piece in self._pieces.values()}
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            if code.co_argcount and id(frame.f_locals.get(code.co_varnames[0])) in pieces:
                return True
            frame = frame.f_back
        return any(_leads_to(piece, iterator) for piece in self._pieces.values())


def untracked_hook_states(model: Any, pieces: Mapping[str, Any]) -> list[str]:
    """Return the types of the states of DDP's communication hooks, such as PowerSGD's, that no tracked object holds."""
    states = [state for _, state in getattr(model, "_comm_hooks", ()) if state is not None]
    return [
        type(state).__name__
        for state in states
        if not isinstance(state, torch.distributed.ProcessGroup)
        and not any(_leads_to(piece, state) for piece in pieces.values())
    ]


def _leads_to(piece: Any, value: Any) -> bool:
    """Return whether an object refers to the value, so that its own state may include the value's."""
    waiting, visited = [piece], set[int]()
    while waiting and len(visited) < _MOST_OBJECTS:
        part = waiting.pop(0)
        if part is value:
            return True
        if id(part) not in visited:
            visited.add(id(part))
            waiting += _values(part)
    return False


def _values(part: Any) -> Iterable[Any]:
    if isinstance(part, dict):
        return part.values()
    values: Iterable[Any] = part if isinstance(part, list | tuple) else getattr(part, "__dict__", {}).values()
    return values
