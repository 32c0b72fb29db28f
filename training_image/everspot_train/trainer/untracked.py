"""Detects state that no checkpoint holds: an optimizer that the loop steps by hand, a second DataLoader that it reads
by hand, and hooks of DDP.

A loader for evaluation is read from its beginning to its end within one step, so nothing of it has to be restored.
"""

import functools
import logging
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any

import torch
from torch.utils.data.dataloader import _BaseDataLoaderIter

from everspot_train.trainer.optimizers import UntrackedOptimizers

log = logging.getLogger("everspot.trainer")

_MOST_OBJECTS = 1024  # that are looked at in one tracked object


class UntrackedState:
    """Detects, while a loop runs, state that no checkpoint holds: optimizers, loaders, and hooks of DDP.

    Args:
        model: the tracked model; None before anything is tracked.
        pieces: everything that is tracked, by name.
        step: returns the steps that are done.
        note: called with a description of each loader and hook, after a warning in the log.
    """

    def __init__(
        self, model: Any, pieces: Mapping[str, Any], step: Callable[[], int], note: Callable[[str], None]
    ) -> None:
        self._model, self._pieces, self._step, self._note = model, pieces, step, note
        self._optimizers = UntrackedOptimizers(pieces, step)
        self._loaders = UntrackedLoaders(pieces, note)

    def begin(self) -> None:
        """The loop begins.

        Raises:
            UnsupportedState: if a schedule changes a tracked optimizer, and is not tracked itself.
        """
        self._optimizers.begin()
        self._loaders.begin()
        _warn_of_hook_states(self._model, self._pieces, self._note)

    def end(self) -> None:
        """The loop is over."""
        self._optimizers.end()
        self._loaders.end()

    def tracked_read(self) -> AbstractContextManager[None]:
        """Read the tracked loader."""
        return self._loaders.tracked_read(self._step())


class UntrackedLoaders:
    """The readings of DataLoaders in one loop.

    torch has no hook for a DataLoader, so the method of its iterators is replaced while the loop runs.

    Args:
        pieces: everything that is tracked, by name.
        note: called once, with a description of the first such loader, after a warning in the log.
    """

    def __init__(self, pieces: Mapping[str, Any], note: Callable[[str], None]) -> None:
        self._pieces, self._note_untracked = pieces, note
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
            loader = f"a DataLoader over {type(iterator._dataset).__name__}"
            log.warning(
                "the loop reads %s that is not tracked over several steps: a resume begins it again, with other "
                "batches. Choose its samples by run.steps_done, or track a loader with a state and make its iterator "
                "after run.restore()",
                loader,
            )
            self._note_untracked(loader)

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


def _warn_of_hook_states(model: Any, pieces: Mapping[str, Any], note: Callable[[str], None]) -> None:
    """Warn of states of DDP's communication hooks, such as PowerSGD's, that no tracked object holds. `note`: called
    with a description of each."""
    for _, state in getattr(model, "_comm_hooks", ()):
        if state is None or isinstance(state, torch.distributed.ProcessGroup):
            continue
        if any(_leads_to(piece, state) for piece in pieces.values()):
            continue
        kind = type(state).__name__
        log.warning(
            "a communication hook of DDP keeps a state (%s) that is not tracked: a resume begins it anew, with "
            "other gradients. Track an object whose state_dict and load_state_dict hold it",
            kind,
        )
        note(f"the state of a communication hook ({kind})")


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
