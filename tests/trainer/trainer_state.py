"""Saves and reads the state of a checkpoint, for the tests of the trainer."""

import tempfile
from pathlib import Path
from typing import Any

from everspot_train.checkpoint.loader import Loader
from everspot_train.checkpoint.manifest import MANIFEST, CheckpointManifest, stream_name
from everspot_train.checkpoint.memory import SharedMemory
from everspot_train.checkpoint.saver import Saver
from everspot_train.trainer.state import TrainState
from trainer_post import JOB, Post


def save(state: TrainState, directory: Path, step: int = 1) -> None:
    """Save the state of one rank into a folder, from which `TrainState.load` restores it."""
    directory.mkdir(parents=True, exist_ok=True)
    state.save(directory, step, 0, Saver(SharedMemory([directory], stream_name(0))))


def read_shared(post: Post) -> dict[str, Any]:
    """Return the shared pieces of the newest checkpoint by name."""
    with tempfile.TemporaryDirectory() as folder:
        assert post.store.checkpoints(JOB).restore(Path(folder)) is not None
        manifest = CheckpointManifest.load(Path(folder) / MANIFEST)
        loader = Loader(manifest, Path(folder))
        return {n: loader.read(tree) for n, tree in manifest.shared.items()}
