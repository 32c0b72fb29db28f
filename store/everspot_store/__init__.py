"""The store: job records, leases, events and checkpoints in two buckets, kept consistent by conditional writes."""

from everspot_store.archive import Archive
from everspot_store.backend import Entry, Uploaded, Version, Versioned, WriteOutcome, WriteResult
from everspot_store.bucket import Bucket
from everspot_store.checkpoints import Checkpoints
from everspot_store.chunks import Chunk, ChunkWriter
from everspot_store.clock import ManualClock, SystemClock
from everspot_store.dataset_cache import DatasetCache
from everspot_store.datasets import Dataset, DatasetFile, Datasets
from everspot_store.errors import (
    BadDocument,
    CheckpointCorrupt,
    DatasetMissing,
    DigestMismatch,
    Fenced,
    JobExists,
    KeyTaken,
    NoCluster,
    NoRoom,
    NothingLeft,
    StoreBusy,
    StoreDenied,
    StoreError,
    StoreMissing,
    StoreUnavailable,
    StoreUntrusted,
    TransferCancelled,
    Unreadable,
    UnsafeArchive,
)
from everspot_store.events import EventWriter
from everspot_store.fleet_state import ElasticUse, FleetState, IdleState, PeerMarket, PoolState
from everspot_store.heartbeat import PeerSight, SchedulerBeat
from everspot_store.leases import Lease
from everspot_store.region import located
from everspot_store.segments import LocalCopies
from everspot_store.status_documents import TeamUsage, Wait, Waiting, WaitPool
from everspot_store.store import Store
from everspot_store.table import Table
from everspot_store.transfers import Transfer
from everspot_store.tree_cache import TreeCache, TreeInUse
from everspot_store.tree_removal import remove_tree

__all__ = [
    "Archive",
    "BadDocument",
    "Bucket",
    "CheckpointCorrupt",
    "Checkpoints",
    "Chunk",
    "ChunkWriter",
    "Dataset",
    "DatasetCache",
    "DatasetFile",
    "DatasetMissing",
    "Datasets",
    "DigestMismatch",
    "ElasticUse",
    "Entry",
    "EventWriter",
    "Fenced",
    "FleetState",
    "IdleState",
    "JobExists",
    "KeyTaken",
    "Lease",
    "LocalCopies",
    "ManualClock",
    "NoCluster",
    "NoRoom",
    "NothingLeft",
    "PeerMarket",
    "PeerSight",
    "PoolState",
    "SchedulerBeat",
    "Store",
    "StoreBusy",
    "StoreDenied",
    "StoreError",
    "StoreMissing",
    "StoreUnavailable",
    "StoreUntrusted",
    "SystemClock",
    "Table",
    "TeamUsage",
    "Transfer",
    "TransferCancelled",
    "TreeCache",
    "TreeInUse",
    "Unreadable",
    "UnsafeArchive",
    "Uploaded",
    "Version",
    "Versioned",
    "Wait",
    "WaitPool",
    "Waiting",
    "WriteOutcome",
    "WriteResult",
    "located",
    "remove_tree",
]
