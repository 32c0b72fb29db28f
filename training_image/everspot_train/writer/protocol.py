"""The messages between the trainer and its writer: one JSON object in a line, over the writer's stdin and stdout."""

from datetime import timedelta
from typing import Annotated, Literal

from everspot_core.documents import Duration, Stored
from everspot_core.jobs.checkpoint import Checkpoint, Part
from everspot_store import errors
from pydantic import Field, JsonValue, TypeAdapter

ALIVE_EVERY = timedelta(seconds=5)
"""Real time between two heartbeats of the writer."""
AFTER_LOOP = "after_loop"
"""In a checkpoint's `info`: code after the loop has changed the state already."""


class StreamFile(Stored):
    """The memory of one rank.

    Attributes:
        path: of the file.
        size: of the stream in it, in bytes.
        counter_at: the place in the file of a signed number of 64 bits: how many bytes of the stream, from the first
            one on, have been copied into it. It is negative if they never will be all.
    """

    path: str
    size: int
    counter_at: int


class RestoreRequest(Stored):
    """Fetch the newest whole checkpoint.

    Attributes:
        folder: for its files.
        streams: folders for its streams, of which the first with enough room is taken.
        memory: files with the memory of an earlier attempt on this machine, by the name of the stream.
    """

    kind: Literal["restore"] = "restore"
    folder: str
    streams: list[str]
    memory: dict[str, str] = Field(default_factory=dict)


class PublishRequest(Stored):
    """Publish a snapshot.

    Attributes:
        step: optimizer steps done.
        directory: whose files belong to it.
        streams: by name.
        info: stored with it.
        unchanged: parts of the checkpoint before it that belong to it, too.
        keep: the number of checkpoints that stay.
        again: publish it also if its step is published already.
        now: the trainer waits. While the store cannot be reached, the writer tries again.
        deadline: the last monotonic moment at which the checkpoint is of use; None: a bounded number of tries.
    """

    kind: Literal["publish"] = "publish"
    step: int
    directory: str
    streams: dict[str, StreamFile]
    info: dict[str, JsonValue]
    unchanged: dict[str, Part]
    keep: int
    again: bool
    now: bool
    deadline: Duration | None = None


class MakeWayRequest(Stored):
    """Wait for the publication under way, or cancel it if a newer snapshot of `size` bytes would otherwise miss its
    `deadline` (monotonic). It has no answer of its own: the publication ends."""

    kind: Literal["make_way"] = "make_way"
    size: int
    deadline: Duration


class SkipRequest(Stored):
    """Pass over checkpoints that an earlier writer of this process has found broken. It has no answer."""

    kind: Literal["skip"] = "skip"
    broken: list[str]


class EndRequest(Stored):
    """End after the publication under way. It has no answer. A pipe alone would not do: processes that the trainer has
    forked, such as DataLoader workers, keep it open."""

    kind: Literal["end"] = "end"


class RestoredAnswer(Stored):
    """The answer to `RestoreRequest`.

    Attributes:
        checkpoint: what was fetched; None: there never was one.
        broken: the identities of those that were passed over.
        streams: the folder that was taken.
        local_bytes: bytes of it that were on this machine still.
    """

    kind: Literal["restored"] = "restored"
    checkpoint: Checkpoint | None
    broken: list[str]
    streams: str
    local_bytes: int = 0


class PublishedAnswer(Stored):
    """The answer to `PublishRequest`: the checkpoint is durable."""

    kind: Literal["published"] = "published"
    checkpoint: Checkpoint


class AliveAnswer(Stored):
    """A heartbeat, every `ALIVE_EVERY` from the writer's start to its end. It answers no request."""

    kind: Literal["alive"] = "alive"


class FailedAnswer(Stored):
    """The answer to a request that failed. `error`: the name of a class in `everspot_store.errors`; empty for an error
    of another kind."""

    kind: Literal["failed"] = "failed"
    error: str
    message: str

    @classmethod
    def from_error(cls, error: Exception) -> "FailedAnswer":
        """The answer for an error."""
        of_store = isinstance(error, errors.StoreError)
        name = type(error).__name__
        return cls(error=name if of_store else "", message=str(error) if of_store else f"{name}: {error}")

    def exception(self) -> Exception:
        """The error, as the writer has met it."""
        kind = getattr(errors, self.error, None) if self.error else None
        if not isinstance(kind, type) or not issubclass(kind, errors.StoreError):
            return RuntimeError(f"the checkpoint writer failed: {self.message}")
        error = kind.__new__(kind)  # some of these classes build their message themselves
        Exception.__init__(error, self.message)
        return error


AnyRequest = RestoreRequest | PublishRequest | MakeWayRequest | SkipRequest | EndRequest
AnyAnswer = RestoredAnswer | PublishedAnswer | FailedAnswer | AliveAnswer
REQUEST: TypeAdapter[AnyRequest] = TypeAdapter(Annotated[AnyRequest, Field(discriminator="kind")])
ANSWER: TypeAdapter[AnyAnswer] = TypeAdapter(Annotated[AnyAnswer, Field(discriminator="kind")])
