"""The messages between the trainer and its writer: one JSON object a line, over the writer's stdin and stdout."""

from datetime import timedelta
from typing import Annotated, Literal

from everspot_core.documents import Duration, Stored
from everspot_core.jobs.checkpoint import Checkpoint, Part
from everspot_store import errors
from pydantic import Field, JsonValue, TypeAdapter

ALIVE_EVERY = timedelta(seconds=5)
"""Real time between two heartbeats of the writer."""


class StreamFile(Stored):
    """The memory of one rank.

    Attributes:
        path: of the file.
        size: of the stream in it, in bytes.
        counter_at: the offset in the file of a signed 64-bit counter: the number of bytes of the stream that have been
            copied so far, from its beginning. A negative counter means that the copy will never be complete.
    """

    path: str
    size: int
    counter_at: int


class RestoreRequest(Stored):
    """Fetch the newest whole checkpoint.

    Attributes:
        folder: for its files.
        streams: folders for its streams. The first one with enough space is used.
        memory: files with the memory of an earlier attempt on this machine, by the name of the stream.
    """

    kind: Literal["restore"] = "restore"
    folder: str
    streams: list[str]
    memory: dict[str, str] = Field(default_factory=dict)


class PublishRequest(Stored):
    """Publish a checkpoint.

    Attributes:
        step: optimizer steps done.
        directory: the directory of its files.
        streams: by name.
        info: stored with it.
        unchanged: parts of the checkpoint before that also belong to it.
        keep: the number of checkpoints to keep.
        again: publish even if its step was published already.
        now: whether the trainer waits. The writer then retries while the store does not answer.
        deadline: the monotonic time until which the checkpoint is useful; None: a bounded number of tries.
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
    """Cancel the publication under way if a newer checkpoint of `size` bytes would otherwise miss its `deadline`
    (monotonic). There is no separate answer: the publication's answer follows."""

    kind: Literal["make_way"] = "make_way"
    size: int
    deadline: Duration


class SkipRequest(Stored):
    """Skip checkpoints that an earlier writer of this trainer has found broken. There is no answer."""

    kind: Literal["skip"] = "skip"
    broken: list[str]


class EndRequest(Stored):
    """End after the publication under way. There is no answer. Closing the pipe would not suffice, because forks of the
    trainer, such as DataLoader workers, keep it open."""

    kind: Literal["end"] = "end"


class RestoredAnswer(Stored):
    """The answer to `RestoreRequest`.

    Attributes:
        checkpoint: the fetched checkpoint; None if there never was one.
        broken: the identities of skipped checkpoints.
        streams: the folder of the streams.
        local_bytes: bytes of it that were still on this machine.
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
        """Return the answer for an error."""
        of_store = isinstance(error, errors.StoreError)
        name = type(error).__name__
        return cls(error=name if of_store else "", message=str(error) if of_store else f"{name}: {error}")

    def exception(self) -> Exception:
        """Return the writer's error."""
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
