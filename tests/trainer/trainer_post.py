"""An agent's side of the run directory, for the tests of the trainer."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from everspot_core.job import JobSpec, JobSubmission
from everspot_store import Store, SystemClock
from everspot_store.folder import FolderBackend
from everspot_train.rundir import LeaseFile, RunContext, RunDir, Status

JOB = "digits-1"
LOOP = Path(__file__).with_name("trainer_loop.py")


@dataclass
class Post:
    """One ownership of the job: its run directory, as an agent would have laid it out."""

    root: Path
    store_root: Path
    epoch: int = 1
    checkpoint: dict[str, object] = field(default_factory=lambda: {"steps": 100_000})
    spec: dict[str, object] = field(default_factory=lambda: {"entrypoint": ["loop.py"], "code": "."})

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True)
        for bucket in ("control", "data"):
            (self.store_root / bucket).mkdir(parents=True, exist_ok=True)
        self.rundir = RunDir(self.root)
        spec = JobSpec.model_validate({"name": "digits", "checkpoint": self.checkpoint} | self.spec)
        self.rundir.write(
            RunContext(
                job_id=JOB,
                epoch=self.epoch,
                instance_id=f"i-{self.epoch}",
                cloud="folder",
                control_url=f"file://{self.store_root}/control",
                data_url=f"file://{self.store_root}/data",
                submission=JobSubmission(job_id=JOB, spec=spec, submitted_at=datetime.now(UTC)),
                scratch_dir=str(self.root / "scratch"),
            )
        )
        self.hold(3600)

    def hold(self, seconds: float, *, lost: bool = False) -> None:
        """Renew the lease; negative: it is over. `lost`: for good."""
        self.rundir.write(LeaseFile(valid_until=time.monotonic() + seconds, lost=lost))

    @property
    def store(self) -> Store:
        context = self.rundir.read(RunContext)
        return Store.open(context.control_url, context.data_url)

    @property
    def status(self) -> Status:
        return self.rundir.read(Status) or Status()

    @property
    def steps_published(self) -> list[int]:
        head = self.store.checkpoints(JOB).head()
        return [checkpoint.step for checkpoint in head.checkpoints] if head else []

    def command(self, ranks: int = 1) -> list[str]:
        if ranks == 1:
            return [sys.executable, str(LOOP)]
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        return [*torchrun, f"--nproc-per-node={ranks}", str(LOOP)]

    def environment(self, losses: Path, **settings: object) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        own = {"EVERSPOT_RUN_DIR": str(self.root), "LOSSES": str(losses), "OMP_NUM_THREADS": "1"}
        return kept | own | {name: str(value) for name, value in settings.items()}

    def start(self, losses: Path, ranks: int = 1, **settings: object) -> "subprocess.Popen[bytes]":
        """The training process, as its agent starts it. stderr is kept for messages of failed assertions."""
        with (self.root / "stderr").open("wb") as stderr:
            return subprocess.Popen(
                self.command(ranks), env=self.environment(losses, **settings), stderr=stderr, start_new_session=True
            )

    def run(self, losses: Path, ranks: int = 1, **settings: object) -> None:
        """The same to its end, which must be a good one."""
        code = self.start(losses, ranks, **settings).wait(timeout=120)
        assert code == 0, (self.root / "stderr").read_text()[-3000:]


def read_losses(*paths: Path) -> list[str]:
    """Lines of step and exact loss, in order of the files."""
    return [line for path in paths for line in path.read_text().splitlines()]


def freeze(process: "subprocess.Popen[bytes]", post: Post) -> None:
    """Stop a process, but never within a write of a folder store: it would hold that key's lock for ever, which no
    bucket does."""
    folders = [FolderBackend(post.store_root / name, SystemClock()) for name in ("control", "data")]
    threads = Path(f"/proc/{process.pid}/task")
    for _ in range(200):
        process.send_signal(signal.SIGSTOP)
        while any((task / "stat").read_text().rpartition(")")[2].split()[0] not in "TZ" for task in threads.iterdir()):
            time.sleep(0.002)
        if not any(folder.locked() for folder in folders):
            return
        process.send_signal(signal.SIGCONT)
        time.sleep(0.01)
    raise AssertionError("the process was never met outside a write")


def wait_for(condition: Callable[[], bool], post: Post, seconds: float = 120) -> None:
    """Wait until `condition` holds; a failure shows what the process said last."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{post.status}\n{(post.root / 'stderr').read_text()[-3000:]}"
        time.sleep(0.05)
