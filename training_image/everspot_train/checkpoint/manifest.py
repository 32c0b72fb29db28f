"""The manifest of a checkpoint: its contents, and the places of the tensors in its streams.

It takes the place of the `.metadata` of `torch.distributed.checkpoint`, which is a pickle: reading one executes what it
says. A manifest is JSON, and is checked before it is used.
"""

from math import prod
from pathlib import Path

import torch
from everspot_core.documents import Document, Stored
from pydantic import Field, JsonValue, NonNegativeInt, ValidationError
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from everspot_train.checkpoint.tree import find_constant

MANIFEST = "manifest.json"
"""The name of the part that holds the manifest."""
FORMAT = 2
"""Version 0.1 wrote format 1, files of torch.save: see `legacy`."""


class ManifestError(ValueError):
    """A manifest cannot be read, or contradicts itself."""


class TensorChunk(Stored):
    """A rectangular part of a tensor, which lies in one piece in a stream.

    Attributes:
        offsets: of its first element in the tensor.
        sizes: of the part.
        stream: the number of the stream, which is the rank that wrote it.
        at: the offset in the stream, in bytes.
        strides: of the part as it lies in the stream, in elements; None: of a contiguous tensor.
    """

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    stream: int = Field(ge=0)
    at: int = Field(ge=0)
    strides: tuple[int, ...] | None = None


class TensorEntry(Stored):
    """A tensor.

    Attributes:
        dtype: the name that torch has for it.
        shape: of the tensor.
        chunks: its parts.
        placements: of a DTensor when it was saved, such as `S(0)` for sharded by its first dimension.
        gapped_strides: the strides of a tensor with unused memory between its elements, which the stream leaves out.
        device: the type of the device on which it was saved; None: on a CPU, or by a version that did not store it.
    """

    dtype: str
    shape: tuple[int, ...]
    chunks: list[TensorChunk]
    placements: list[str] | None = None
    gapped_strides: tuple[NonNegativeInt, ...] | None = None
    device: str | None = None

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype. Raises `ValueError` if torch has none of this name."""
        return find_constant(self.dtype, torch.dtype)


class RankPieces(Stored):
    """The pieces of one rank. `pieces`: by name. `own`: the parts of shared pieces that differ on this rank."""

    pieces: dict[str, JsonValue]
    own: dict[str, JsonValue] = Field(default_factory=dict)


class CheckpointManifest(Document):
    """The contents of a checkpoint.

    Attributes:
        format: of the checkpoint.
        step: optimizer steps done.
        shared: the pieces that all ranks share, as trees (see `tree`).
        ranks: the pieces of each rank.
        tensors: by the paths that the trees refer to.
        streams: the sizes of the streams, in bytes.
    """

    format: int = FORMAT
    step: int
    shared: dict[str, JsonValue]
    ranks: list[RankPieces]
    tensors: dict[str, TensorEntry]
    streams: list[int]

    @classmethod
    def load(cls, path: Path) -> "CheckpointManifest":
        """Read and check a manifest.

        Raises:
            ManifestError: if it cannot be read, is of a later format, or contradicts itself.
        """
        try:
            manifest = cls.read(path.read_bytes())
            manifest._check()
        except (ValidationError, ValueError, RecursionError) as error:
            raise ManifestError(f"{path.name} cannot be read: {' '.join(str(error).split())[:300]}") from error
        return manifest

    def _check(self) -> None:
        if self.format != FORMAT:
            raise ValueError(f"format {self.format} is not {FORMAT}: was it written by a later version?")
        for path, entry in self.tensors.items():
            size = entry.torch_dtype.itemsize
            for chunk in entry.chunks:
                inside = len(chunk.offsets) == len(chunk.sizes) == len(entry.shape) and all(
                    offset >= 0 and length >= 0 and offset + length <= whole
                    for offset, length, whole in zip(chunk.offsets, chunk.sizes, entry.shape, strict=True)
                )
                end = chunk.at + prod(chunk.sizes) * size
                if not inside or chunk.stream >= len(self.streams) or end > self.streams[chunk.stream]:
                    raise ValueError(f"a chunk of {path} lies outside the tensor or its stream")
            if entry.gapped_strides is not None and len(entry.gapped_strides) != len(entry.shape):
                raise ValueError(f"{path} has not as many strides as dimensions")
            if sum(prod(chunk.sizes) for chunk in entry.chunks) != prod(entry.shape):
                raise ValueError(f"the chunks of {path} do not make up the tensor")

    def metadata(self) -> Metadata:
        """Return the metadata for the planners of `torch.distributed.checkpoint`."""
        tensors: dict[str, TensorStorageMetadata] = {}
        places: dict[MetadataIndex, TensorChunk] = {}
        for path, entry in self.tensors.items():
            chunks = [
                ChunkStorageMetadata(offsets=torch.Size(chunk.offsets), sizes=torch.Size(chunk.sizes))
                for chunk in entry.chunks
            ]
            properties = TensorProperties(dtype=entry.torch_dtype)
            tensors[path] = TensorStorageMetadata(properties=properties, size=torch.Size(entry.shape), chunks=chunks)
            places |= {MetadataIndex(path, chunk.offsets): chunk for chunk in entry.chunks}
        return Metadata(state_dict_metadata=dict(tensors), storage_data=places)


def stream_name(number: int) -> str:
    """Return the name of a rank's stream."""
    return f"stream-{number:05d}"
