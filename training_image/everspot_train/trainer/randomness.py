"""The state of every random generator that a training loop draws from."""

import contextlib
import logging
import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from everspot_train.trainer.generators import RandomGenerator, generator_state, set_generator_state

log = logging.getLogger("everspot.trainer")


class GlobalRandomness:
    """The global generators of python, numpy, torch and the CUDA devices that this process sees, as one piece of
    state."""

    def state_dict(self) -> dict[str, Any]:
        """States as plain numbers and tensors."""
        version, words, gauss = random.getstate()
        legacy = np.random.get_state(legacy=False)
        assert isinstance(legacy, dict)  # noqa: S101 - tells the type checker which of two forms was asked for
        return {
            "python": [version, list(words), gauss],
            "numpy": {
                "generator": legacy["bit_generator"],
                "key": torch.from_numpy(legacy["state"]["key"].astype(np.int64)),
                "position": int(legacy["state"]["pos"]),
                "has_gauss": int(legacy["has_gauss"]),
                "gauss": float(legacy["gauss"]),
            },
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
            "cuda_devices": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore every generator. CUDA states are ignored without a CUDA device. The present device gets the state of
        the device that was used before, whatever its number."""
        version, words, gauss = state["python"]
        random.setstate((version, tuple(words), gauss))
        saved = state["numpy"]
        inner = {"key": saved["key"].numpy().astype(np.uint32), "pos": saved["position"]}
        np.random.set_state(
            {"bit_generator": saved["generator"], "state": inner}
            | {"has_gauss": saved["has_gauss"], "gauss": saved["gauss"]}
        )
        torch.set_rng_state(state["torch"])
        if state["cuda"] is not None and torch.cuda.is_available():
            for device, other in enumerate(state.get("cuda_devices", [])[: torch.cuda.device_count()]):
                torch.cuda.set_rng_state(other, device)
            torch.cuda.set_rng_state(state["cuda"])


class LoopRandomness:
    """The global random generators and the program's own, as one piece of state.

    A loaded state takes effect when the loop begins, so that draws between the program's start and its loop (a sanity
    check, a data loader's seed) do not change the draws of the loop.
    """

    def __init__(self) -> None:
        self._global = GlobalRandomness()
        self._generators: dict[str, RandomGenerator] = {}
        self._pending: dict[str, Any] | None = None

    def watch(self, generators: Mapping[str, RandomGenerator]) -> None:
        """Keep the state of these generators, too."""
        self._generators = dict(generators)

    def apply_pending(self, *, last: bool = True) -> None:
        """Put the loaded state into effect.

        Args:
            last: the next batch is about to be read; otherwise the state is kept, to be put into effect again then.
        """
        state = self._pending
        if state is None:
            return
        if last:
            self._pending = None
        self._global.load_state_dict(state)
        saved = state.get("generators")
        if saved is None:  # a checkpoint of an earlier version
            return
        reasons = dict.fromkeys(saved.keys() - self._generators.keys(), "does not exist now")
        for path, generator in self._generators.items():
            try:
                set_generator_state(generator, saved[path])
            except KeyError:
                reasons[path] = "is not in the checkpoint"
            except (ValueError, TypeError, RuntimeError) as error:
                reasons[path] = f"was another one ({error})"
        for path, reason in sorted(reasons.items()):
            log.warning(
                "the random generator %s %s: its numbers start afresh. Make it before run.batches, in every attempt",
                path,
                reason,
            )

    def state_dict(self) -> dict[str, Any]:
        """States as plain numbers and tensors."""
        if self._pending is not None:
            return self._pending
        own = {path: generator_state(generator) for path, generator in self._generators.items()}
        return self._global.state_dict() | {"generators": own}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take a state, which `apply_pending` puts into effect."""
        self._pending = state


class RandomStream:
    """The global generators' states for one part of the program, apart from everything else that draws from them.

    Args:
        seed: what the stream begins with.
    """

    def __init__(self, seed: int) -> None:
        with _global_states_kept():
            words = np.random.SeedSequence([seed]).generate_state(3)
            random.seed(int(words[0]))
            np.random.seed(int(words[1]))
            torch.default_generator.manual_seed(int(words[2]))
            self._states = _global_states()

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Let python, numpy and torch draw from this stream."""
        with _global_states_kept():
            _set_global_states(self._states)
            try:
                yield
            finally:
                self._states = _global_states()

    @property
    def position(self) -> tuple[Any, ...]:
        """A value that changes with each draw."""
        python, numpy, torch_state = self._states
        return python, numpy[1].tobytes(), numpy[2:], torch_state.numpy().tobytes()

    def state_dict(self) -> dict[str, Any]:
        """States as plain numbers and tensors."""
        with self.active():
            return GlobalRandomness().state_dict() | {"cuda": None, "cuda_devices": []}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a state."""
        with self.active():
            GlobalRandomness().load_state_dict(state)


def _global_states() -> tuple[Any, ...]:
    return random.getstate(), np.random.get_state(), torch.get_rng_state()


def _set_global_states(states: tuple[Any, ...]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])


@contextlib.contextmanager
def _global_states_kept() -> Iterator[None]:
    states = _global_states()
    try:
        yield
    finally:
        _set_global_states(states)


def seed_everything(seed: int, rank: int = 0) -> None:
    """Seed the global generators, differently on each rank, so that dropout differs between ranks."""
    words = np.random.SeedSequence([seed, rank]).generate_state(3)
    random.seed(int(words[0]))
    np.random.seed(int(words[1]))
    torch.manual_seed(int(words[2]))
