"""A user's program with DataLoader workers, which hand tensors over by sockets and by files below TMPDIR."""

import os
import stat
import tempfile
import threading
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((1000,), float(index * index))


def total(start: str, sharing: str) -> float:
    torch.multiprocessing.set_sharing_strategy(sharing)
    loader = DataLoader(Squares(), batch_size=2, num_workers=1, multiprocessing_context=start)
    return sum(batch.mean().item() for batch in loader)


def main() -> None:
    watchdog = threading.Timer(180, os._exit, [7])  # a hang is a failure
    watchdog.daemon = True
    watchdog.start()
    folder = tempfile.gettempdir()
    print(f"TMPDIR {folder} {stat.S_IMODE(Path(folder).stat().st_mode):o}", flush=True)
    for start, sharing in (("spawn", "file_system"), ("forkserver", "file_descriptor")):
        print(f"{start} {sharing} {total(start, sharing)}", flush=True)
    time.sleep(float(os.environ.get("WORKERS_REST", "0")))


if __name__ == "__main__":
    main()
