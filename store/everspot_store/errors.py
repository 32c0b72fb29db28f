"""The errors of the store: one class for each way in which a caller can react.

StoreError
├── StoreUnavailable    transient: bounded retries are spent, try again later
│   ├── StoreBusy       the store asks for fewer requests (429); nothing was written
│   └── StoreUntrusted  the certificate of the server is refused: a person may have to act
├── StoreDenied         credentials or permission: a person must act
├── StoreMissing        the bucket or folder does not exist
├── BadDocument         a document cannot be read as its type
├── JobExists           a job with this id was already submitted
├── NothingLeft         the checkpoints that a job should continue from were removed
├── Unreadable          some of the documents that a decision needs cannot be read
├── KeyTaken            a write-once key exists already, with other content
├── TransferCancelled   an upload was cancelled by its own process
├── Fenced              the caller is no longer the owner: it must stop, and publish nothing
├── DigestMismatch      bytes differ from the published ones
├── CheckpointCorrupt   the job has checkpoints, and none is whole
├── DatasetMissing      the dataset, or this version of it, does not exist
├── NoRoom              the disk cannot hold a dataset
└── UnsafeArchive       packed code that would write outside its folder
"""


class StoreError(Exception):
    """Base class of all errors that the store raises."""


class StoreUnavailable(StoreError):
    """The store did not answer, or answered that it is busy, more often than the bounded retries allow."""


class StoreBusy(StoreUnavailable):
    """The store answered that it gets too many requests, more often than the bounded retries allow. Nothing was
    written."""


class StoreUntrusted(StoreUnavailable):
    """The certificate of the server is refused, as behind a proxy that inspects TLS."""


class StoreDenied(StoreError):
    """The store refused the caller. A role without ListBucket sees this for keys that do not exist."""


class StoreMissing(StoreError):
    """The bucket or folder does not exist."""


class NoCluster(StoreError):
    """The bucket or folder exists, but has no `cluster.json`."""


class BadDocument(StoreError):
    """A stored document is not valid JSON of its type."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key} cannot be read: {reason}")
        self.key = key


class JobExists(StoreError):
    """A job with this id was submitted before."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id} exists already; ids are used once")
        self.job_id = job_id


class NothingLeft(StoreError):
    """The job had checkpoints, and they were removed after its end."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"the checkpoints of {job_id} were removed; --from-scratch begins at step 0")
        self.job_id = job_id


class Unreadable(StoreError):
    """This program cannot read some of the documents that a decision needs. `keys`: their keys."""

    def __init__(self, keys: list[str]) -> None:
        super().__init__(
            f"{len(keys)} documents cannot be read, and any object that they name may be in use, so nothing is removed:"
            f" {', '.join(keys)}; is another version of everspot in use?"
        )
        self.keys = keys


class KeyTaken(StoreError):
    """A write-once key exists already, with other content."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{key} exists already and is never overwritten")
        self.key = key


class TransferCancelled(StoreError):
    """The upload was cancelled by its own process. Nothing of it is published."""


class Fenced(StoreError):
    """A later owner has taken the job. The caller must never write again."""

    def __init__(self, job_id: str, epoch: int, reason: str) -> None:
        super().__init__(f"job {job_id}: epoch {epoch} may no longer write: {reason}")
        self.job_id = job_id
        self.epoch = epoch


class DigestMismatch(StoreError):
    """The bytes under a key are not the ones whose digest was published."""

    def __init__(self, key: str, expected: str, actual: str) -> None:
        super().__init__(f"{key}: the digest should be {expected} and is {actual}")
        self.key = key
        self.expected = expected
        self.actual = actual


class CheckpointCorrupt(StoreError):
    """No published checkpoint of the job is whole."""

    def __init__(self, job_id: str, reasons: list[str]) -> None:
        super().__init__(f"job {job_id}: no checkpoint is whole: " + "; ".join(reasons))
        self.job_id = job_id
        self.reasons = reasons


class DatasetMissing(StoreError):
    """The dataset, or this version of it, does not exist."""

    def __init__(self, name: str, digest: str | None, reason: str) -> None:
        version = f", version {digest}," if digest else ""
        super().__init__(f"dataset {name}{version} {reason}; put it with `everspot data put DIR {name}`")
        self.name = name
        self.digest = digest


class NoRoom(StoreError):
    """The disk cannot hold a dataset. Sizes in bytes."""

    def __init__(self, needed: int, free: int) -> None:
        super().__init__(f"the dataset needs {needed} bytes more on this disk, which has {free} to spare")
        self.needed = needed
        self.free = free


class UnsafeArchive(StoreError):
    """An archive of code holds an entry that must not be unpacked."""
