"""The random generators of this process, as values that any checkpoint can hold: numbers, text, tensors and lists."""

from typing import Any

import torch

from everspot_train.trainer.randomness import GlobalRandomness


def read_random_states() -> dict[str, Any]:
    """Return the states of the global generators of python, numpy, torch and all CUDA devices."""
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return GlobalRandomness().state_dict() | {"cuda": devices, "cuda_devices": []}


def restore_random_states(states: dict[str, Any]) -> None:
    """Set the generators to states that `read_random_states` has returned. Those of GPUs that this machine has not are
    left out."""
    GlobalRandomness().load_state_dict(states | {"torch": states["torch"].cpu(), "cuda": None})
    if torch.cuda.is_available() and len(states["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([state.cpu() for state in states["cuda"]])
