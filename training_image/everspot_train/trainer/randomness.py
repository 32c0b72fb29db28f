"""The state of every random generator that a training loop draws from by default."""

import random
from typing import Any

import numpy as np
import torch


class GlobalRandomness:
    """The global generators of python, numpy, torch and this process's CUDA device, as one piece of state."""

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
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore every generator. A CUDA state is ignored without a CUDA device."""
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
            torch.cuda.set_rng_state(state["cuda"])


def seed_everything(seed: int, rank: int = 0) -> None:
    """Seed the global generators, differently on each rank, so that dropout differs between ranks."""
    words = np.random.SeedSequence([seed, rank]).generate_state(3)
    random.seed(int(words[0]))
    np.random.seed(int(words[1]))
    torch.manual_seed(int(words[2]))
