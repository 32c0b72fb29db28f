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
from trainer_overlap import describe
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
            shared = {n: loader.read(t) for n, t in manifest.shared.items()}
            for name, tree in manifest.ranks[0].own.items():  # a rank's statistics of batches are its own
                shared[name].update(loader.read(tree))
        digests[checkpoint.step] = describe(shared)
    return digests


def start(root: Path, ranks: int, environment: Callable[..., dict[str, str]], **settings: object) -> list[int]:
    """Run the script on each rank to its end, and return the exit codes."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": store.port, "TORCHELASTIC_USE_AGENT_STORE": "True"}
    own = [{"RANK": n, "LOCAL_RANK": n, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks} for n in range(ranks)]
    several = meeting if ranks > 1 else {}
    writer = {} if "KILL_WRITER_AT" in settings else {"FORKED_WRITER": 1}  # a fork has no process of its own to kill
    environments = [
        environment(root / "record", **writer, **settings, **several, **(rank if ranks > 1 else {})) for rank in own
    ]
    processes = [Forked(SCRIPT, environment, root / "stderr") for environment in environments]
    return [process.wait(timeout=120) for process in processes]


def train_alone(root: Path, ranks: int, environment: Callable[..., dict[str, str]], **settings: object) -> list[Any]:
    """Train without an agent, and return the record."""

    def without_agent(*arguments: Any, **settings: object) -> dict[str, str]:
        variables = environment(*arguments, **settings)
        return {name: value for name, value in variables.items() if name != "EVERSPOT_RUN_DIR"}

    root.mkdir()
    assert set(start(root, ranks, without_agent, **settings)) == {0}
    return read_record(root / "record.0")


def compare(expected: list[dict[str, Any]], posts: list[Post]) -> None:
    """Compare the losses and tensors of all steps, and all checkpoints, with those of an undisturbed run."""
    lines: list[dict[str, Any]] = []
    for post in posts:
        from_step = post.status.resumed_from or 0
        own = read_record(post.root / "record.0") if (post.root / "record.0").exists() else []
        lines = [line for line in lines if line["step"] <= from_step] + own if own else lines
    assert [(line["step"], line["loss"]) for line in lines] == [(line["step"], line["loss"]) for line in expected]
    assert all(line["digests"] == other["digests"] for line, other in zip(lines, expected, strict=True))
    checkpoints = read_checkpoints(posts[-1])
    assert len(expected) in checkpoints and len(checkpoints) > 2
    for step, digests in checkpoints.items():
        own = expected[step - 1]["digests"]
        assert {path: digests.get(path) for path in own} == own


def check(
    make_post: Callable[..., Post],
    habit: str,
    ranks: int = 1,
    machine: dict[str, object] | None = None,
    **settings: object,
) -> tuple[list[dict[str, Any]], str]:
    """Train undisturbed, and again with a checkpoint at each step and a kill. Compare all losses, and all tensors of
    all checkpoints. Return the record of the attempt that was killed, and its stderr. `machine`: of both attempts;
    `settings`: of the attempt that is killed."""
    policy = {"steps": 100_000, "keep": 20}
    killed, resumed = (make_post(epoch, checkpoint=policy, machine=machine or {}) for epoch in (1, 2))
    expected = train_alone(killed.root.with_name("undisturbed"), ranks, killed.environment, HABIT=habit)
    assert start(killed.root, ranks, killed.environment, HABIT=habit, KILL_AT=5, **settings)[0] == -9
    assert set(start(resumed.root, ranks, resumed.environment, HABIT=habit)) == {0}, read_stderr(resumed)
    compare(expected, [killed, resumed])
    return read_record(killed.root / "record.0"), read_stderr(killed)


def read_stderr(post: Post) -> str:
    return (post.root / "stderr").read_text()
