"""Ranks of which the first is late for a decision by more than torch's own timeout for a process group."""

import time
from datetime import timedelta

import torch.distributed as dist
from everspot_train.trainer.ranks import Ranks
from torch.distributed import distributed_c10d

LATE_SECONDS = 1.5

if __name__ == "__main__":
    dist.init_process_group("gloo", timeout=timedelta(minutes=2))
    distributed_c10d.default_pg_timeout = timedelta(seconds=LATE_SECONDS / 3)  # instead of 30 minutes
    ranks = Ranks()
    ranks.meet()
    if ranks.first:
        time.sleep(LATE_SECONDS)
    assert ranks.share(17 if ranks.first else 0) == 17
    ranks.leave()
    dist.destroy_process_group()
