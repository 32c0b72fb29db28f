"""What the cloud says about this instance: who it is, its manifest, and whether it is about to be taken away."""

from pathlib import Path
from typing import Protocol

from everspot_core.documents import Frozen
from everspot_core.manifest import Manifest
from everspot_core.records import Market, Notice
from pydantic import ValidationError


class MetadataError(Exception):
    """The metadata service answered, but not with what an instance of Everspot needs."""


class MetadataUnavailable(MetadataError):
    """The metadata service did not answer, or with an error of its own, for as often as was tried."""


class Identity(Frozen):
    """What differs between the instances of a cluster. `zone` is a zone name, such as us-east-1a."""

    instance_id: str
    instance_type: str
    zone: str
    market: Market


class Metadata(Protocol):
    """One cloud's metadata service. Every method raises `MetadataUnavailable` while the service is not to be had."""

    def manifest(self) -> Manifest:
        """The manifest that the infrastructure handed to this instance. Raises `MetadataError` if there is none."""
        ...

    def identity(self) -> Identity:
        """Who this instance is."""
        ...

    def interruption(self) -> Notice | None:
        """The notice that this instance will be taken away; None while there is none."""
        ...

    def rebalance(self) -> Notice | None:
        """The recommendation to be ready for it; None while there is none."""
        ...


class FolderMetadata:
    """No cloud: the manifest is a file and the identity was given on the command line.

    Notices come through the store only.
    """

    def __init__(self, manifest_file: Path, identity: Identity) -> None:
        self._manifest_file = manifest_file
        self._identity = identity

    def manifest(self) -> Manifest:
        """The manifest in the file."""
        try:
            return parse_manifest(self._manifest_file.read_text(), str(self._manifest_file))
        except OSError as error:
            raise MetadataError(f"the manifest cannot be read: {error}") from error

    def identity(self) -> Identity:
        """As given."""
        return self._identity

    def interruption(self) -> Notice | None:
        """Never: a folder gives no notice."""
        return None

    def rebalance(self) -> Notice | None:
        """Never."""
        return None


def parse_manifest(text: str, where: str) -> Manifest:
    """The manifest in `text`.

    Raises:
        MetadataError: if it is none; the message names `where` it was found.
    """
    try:
        return Manifest.model_validate_json(text)
    except ValidationError as error:
        raise MetadataError(f"{where} holds no manifest: {error}") from error
