"""The self-test of a baked image: whether a job could do on this machine what jobs do. It needs no cluster.

In an image it runs as a job does, by the broker (training_image/bake/self-test.conf), so that a wall that is in a job's
way is found by the bake.
"""

import logging
import os
import socket
import sys
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from everspot_core.clock import Clock
from everspot_store import SystemClock, remove_tree

from everspot_train.agent.logs import OUTPUT
from everspot_train.agent.process import JobLaunch, ProgramLauncher
from everspot_train.broker.protocol import HOME, PLACES

PEER_TIMEOUT = timedelta(minutes=5)
"""For two processes to find each other and to sum one tensor. A cold import of torch takes most of it."""
_LOOK_EVERY = timedelta(milliseconds=200)
_WORKERS = 2
_ITEMS = 8


class SelfTestFailed(Exception):
    """One of the checks failed; the message says which."""


def run_self_test(clock: Clock) -> None:
    """Run all checks, each with a line on standard output.

    Raises:
        SelfTestFailed: after the last check, if any failed.
    """
    failed = []
    started = clock.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for name, check in CHECKS.items():
            began = clock.monotonic()
            try:
                result = check(Path(folder))
            except Exception as error:
                failed.append(name)
                result = f"FAILED: {type(error).__name__}: {error}"
                logging.getLogger(__name__).debug("the check %r failed", name, exc_info=True)
            print(f"self-test: {name}: {result} ({(clock.monotonic() - began).total_seconds():.1f} s)", flush=True)  # noqa: T201
    seconds = (clock.monotonic() - started).total_seconds()
    if failed:
        raise SelfTestFailed(f"self-test: failed after {seconds:.1f} s: {', '.join(failed)}")
    print(f"self-test: passed in {seconds:.1f} s", flush=True)  # noqa: T201


def run_as_job(launcher: ProgramLauncher, clock: Clock) -> None:
    """Run all checks as a job of the image's broker, within the walls and as the user of a job.

    Raises:
        BrokerError: if it cannot be started.
        SelfTestFailed: if any check failed.
    """
    folders = {kind: HOME / place / "self-test" for kind, place in PLACES.items()}
    try:
        for folder in folders.values():
            folder.mkdir(parents=True, exist_ok=True)
        run, work = folders.pop("run"), folders.pop("work")
        environment = {**os.environ, "HOME": str(run), "TMPDIR": str(folders["temporary"])}
        command = [sys.executable, "-m", "everspot_train.self_test"]
        process = launcher.launch(JobLaunch(command, run, work, environment, folders=list(folders.values())))
        try:
            while (code := process.exit_code()) is None:
                clock.sleep(_LOOK_EVERY)
        finally:
            process.kill()
        print((run / OUTPUT).read_text(errors="replace"), end="", flush=True)  # noqa: T201
    finally:
        for place in PLACES.values():
            remove_tree(HOME / place / "self-test")
    if code:
        raise SelfTestFailed(f"self-test: ended with {code}")


def _import(_folder: Path) -> str:
    import torch

    import everspot_train.agent.agent
    import everspot_train.trainer  # noqa: F401

    return f"torch {torch.__version__}, {torch.get_num_threads()} threads"


def _unpack_code(folder: Path) -> str:
    from everspot_store.code import pack, unpack

    source = folder / "source"
    (source / "package").mkdir(parents=True)
    (source / "package" / "module.py").write_text("VALUE = 1\n")
    (source / "link.py").symlink_to("package/module.py")
    pack(source, folder / "code.tar.gz")
    unpack(folder / "code.tar.gz", folder / "code")
    if (folder / "code" / "package" / "module.py").read_text() != "VALUE = 1\n":
        raise ValueError("the unpacked file differs")
    return "a package and a link"


def _load_data(_folder: Path) -> str:
    import torch

    dataset = torch.utils.data.TensorDataset(torch.arange(_ITEMS))
    loader = torch.utils.data.DataLoader(dataset, batch_size=2, num_workers=_WORKERS)
    items = sorted(int(value) for (batch,) in loader for value in batch)
    if items != list(range(_ITEMS)):
        raise ValueError(f"{items} in place of {_ITEMS} items")
    return f"{_ITEMS} items by {_WORKERS} workers"


def _sum_over_processes(rank: int, port: int) -> None:
    import torch
    import torch.distributed as dist

    # By the machine's own name, which gloo looks up for its connections, too: an image has to know it.
    url = f"tcp://{socket.gethostname()}:{port}"
    dist.init_process_group("gloo", init_method=url, rank=rank, world_size=2, timeout=PEER_TIMEOUT)
    total = torch.tensor([rank + 1.0])
    dist.all_reduce(total)
    dist.destroy_process_group()
    if total.item() != 3.0:
        raise ValueError(f"the sum over two processes is {total.item()}, not 3")


def _exchange(_folder: Path) -> str:
    from torch.multiprocessing.spawn import spawn

    with socket.create_server((socket.gethostname(), 0)) as server:
        port = server.getsockname()[1]
    spawn(_sum_over_processes, args=(port,), nprocs=2)
    return f"the sum of two gloo processes on {socket.gethostname()}"


def _compile(folder: Path) -> str:
    import torch

    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")  # an earlier result would need no compiler
    compiled = torch.compile(lambda x: torch.sin(x) * 2 + x)
    values = torch.linspace(0, 1, 64)
    if not torch.allclose(compiled(values), torch.sin(values) * 2 + values):
        raise ValueError("the compiled function has another result")
    return "a function by torch.compile"


CHECKS: dict[str, Callable[[Path], str]] = {
    "import": _import,
    "code": _unpack_code,
    "data": _load_data,
    "processes": _exchange,
    "compiler": _compile,
}
"""By name. Each gets a folder of its own to write in, and returns what it did."""


if __name__ == "__main__":
    try:
        run_self_test(SystemClock.from_environment())
    except SelfTestFailed as error:
        sys.exit(str(error))
