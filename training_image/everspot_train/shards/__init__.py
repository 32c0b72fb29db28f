"""Datasets that stream through a cache of a limited size, instead of being on the disk as a whole.

The job's file names the dataset in `datasets` and in `stream`. The program reads it as a data set with a length:

    dataset = ShardedDataset("web", cache_gb=50)
    run.track(loader=dataset.loader(64, num_workers=8))

The order of the samples is a function of seed and epoch, and its position is in the checkpoint.
"""

from everspot_train.shards.dataset import ShardedDataset, ShardOrder
from everspot_train.shards.index import write_index

__all__ = ["ShardOrder", "ShardedDataset", "write_index"]
