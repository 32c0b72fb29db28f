"""Runs the loop of trainer_overlap.py undisturbed and with checkpoints, and compares all of it."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from everspot_train.checkpoint.loader import Loader
from everspot_train.checkpoint.manifest import MANIFEST, CheckpointManifest
from torch.distributed import TCPStore
from trainer_forks import Forked
from trainer_overlap import TOTAL, describe
from trainer_post import JOB, Post

SCRIPT = Path(__file__).with_name("trainer_overlap.py")


def read_record(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def read_checkpoints(post: Post) -> dict[int, dict[str, str]]:
    """Return the digests of the tensors in each checkpoint, by step."""
    digests, checkpoints = dict[int, dict[str, str]](), post.store.checkpoints(JOB)
    head = checkpoints.head()
    for checkpoint in head.checkpoints if head is not None else []:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            assert checkpoints.restore(folder, order=lambda _, own=checkpoint: [own]) == checkpoint
            manifest = CheckpointManifest.load(folder / MANIFEST)
            loader = Loader(manifest, folder)
            shared = {n: loader.read(t, lambda *_: None, copy=True) for n, t in manifest.shared.items()}
            for name, tree in manifest.ranks[0].own.items():  # a rank's statistics of batches are its own
                shared[name].update(loader.read(tree, lambda *_: None, copy=True))
        digests[checkpoint.step] = describe(shared)
    return digests


def start(root: Path, ranks: int, environment: Callable[..., dict[str, str]], **settings: object) -> list[int]:
    """Run the script on each rank to its end, and return the exit codes."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": store.port, "TORCHELASTIC_USE_AGENT_STORE": "True"}
    own = [{"RANK": n, "LOCAL_RANK": n, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks} for n in range(ranks)]
    environments = [environment(root / "record", **settings, **(meeting | rank if ranks > 1 else {})) for rank in own]
    processes = [Forked(SCRIPT, environment, root / "stderr") for environment in environments]
    return [process.wait(timeout=120) for process in processes]


def check(make_post: Callable[..., Post], habit: str, ranks: int = 1) -> tuple[list[dict[str, Any]], str]:
    """Train undisturbed, and again with a checkpoint at each step and a kill. Compare all losses, and all tensors of
    all checkpoints. Return the record of the attempt that was killed, and its stderr."""
    killed, resumed = (make_post(epoch, checkpoint={"steps": 100_000, "keep": 20}) for epoch in (1, 2))
    alone = killed.root.with_name("undisturbed")
    alone.mkdir()

    def without_agent(*arguments: Any, **settings: object) -> dict[str, str]:
        environment = killed.environment(*arguments, **settings)
        return {name: value for name, value in environment.items() if name != "EVERSPOT_RUN_DIR"}

    assert set(start(alone, ranks, without_agent, HABIT=habit)) == {0}
    assert start(killed.root, ranks, killed.environment, HABIT=habit, KILL_AT=5)[0] == -9
    assert set(start(resumed.root, ranks, resumed.environment, HABIT=habit)) == {0}, read_stderr(resumed)
    first, expected = read_record(killed.root / "record.0"), read_record(alone / "record.0")
    from_step = resumed.status.resumed_from or 0
    lines = [line for line in first if line["step"] <= from_step] + read_record(resumed.root / "record.0")
    assert [(line["step"], line["loss"]) for line in lines] == [(line["step"], line["loss"]) for line in expected]
    assert all(line["digests"] == other["digests"] for line, other in zip(lines, expected, strict=True))
    checkpoints = read_checkpoints(resumed)
    assert TOTAL in checkpoints and len(checkpoints) > 2
    for step, digests in checkpoints.items():
        own = expected[step - 1]["digests"]
        assert {path: digests.get(path) for path in own} == own
    return first, read_stderr(killed)


def read_stderr(post: Post) -> str:
    return (post.root / "stderr").read_text()
