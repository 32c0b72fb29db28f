"""The agent's side of the run directory, for the tests of the trainer."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_store import Store, SystemClock
from everspot_store.folder import FolderBackend
from everspot_train.rundir import LeaseFile, RunContext, RunDir, Status
from torch.distributed import TCPStore
from trainer_forks import Forked

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
    machine: dict[str, object] = field(default_factory=dict)
    """The agent's data about its machine: the notice, and the rate of interruptions."""

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
                **self.machine,
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

    def environment(self, losses: Path, **settings: object) -> dict[str, str]:
        inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        own = {"EVERSPOT_RUN_DIR": str(self.root), "LOSSES": str(losses), "OMP_NUM_THREADS": "1"}
        return inherited | own | {name: str(value) for name, value in settings.items()}

    def start(self, losses: Path, script: Path = LOOP, **settings: object) -> Forked:
        """The training process, as its agent starts it. stderr is kept for messages of failed assertions."""
        return Forked(script, self.environment(losses, **settings), self.root / "stderr")

    def run(self, losses: Path, **settings: object) -> None:
        """The same to its end, which must be a good one, with a forked writer."""
        self._good(self.start(losses, FORKED_WRITER=1, **settings).wait(timeout=120))

    def run_ranks(self, losses: Path, ranks: int, script: Path = LOOP, **settings: object) -> None:
        """Several ranks to their end, in the environment that torchrun gives them."""
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": store.port, "TORCHELASTIC_USE_AGENT_STORE": "True"}
        words = [{"RANK": n, "LOCAL_RANK": n, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks} for n in range(ranks)]
        processes = [self.start(losses, script, FORKED_WRITER=1, **settings, **meeting, **own) for own in words]
        for process in processes:
            self._good(process.wait(timeout=120))

    def run_as_users_do(self, losses: Path, ranks: int = 1, **settings: object) -> None:
        """The same in processes of their own: by python, or by torchrun for several ranks."""
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
        with (self.root / "stderr").open("wb") as stderr:
            command = [sys.executable, *torchrun, str(LOOP)]
            environment = self.environment(losses, **settings)
            done = subprocess.run(command, env=environment, stderr=stderr, timeout=120, check=False)
        self._good(done.returncode)

    def _good(self, code: int) -> None:
        assert code == 0, (self.root / "stderr").read_text()[-3000:]


def read_losses(*paths: Path) -> list[str]:
    """Lines of step and exact loss, in order of the files."""
    return [line for path in paths for line in path.read_text().splitlines()]


def freeze(process: Forked, post: Post) -> None:
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
