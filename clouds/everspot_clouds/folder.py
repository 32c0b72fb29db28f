"""Clusters without a cloud: people start agents by hand on a shared folder. Only the agents' reports say that they
exist."""

import logging
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from everspot_core.capacity.catalogue import Catalogue
from everspot_core.capacity.launching import LaunchIntent
from everspot_core.capacity.market import Market
from everspot_core.capacity.price_table import PriceTable
from everspot_core.clock import Clock
from everspot_core.cluster.manifest import Manifest
from everspot_core.cluster.notify import Notifications
from everspot_core.jobs.records import InstanceRecord, InstanceState
from everspot_store import Store

from everspot_clouds.base import (
    Check,
    CloudInstance,
    Identity,
    LaunchAnswer,
    MetadataError,
    NotOffered,
    Phase,
    Prover,
    Provider,
    RemoteAccess,
    Site,
    Trouble,
)
from everspot_clouds.base.package_provider import PackageRules
from everspot_clouds.null_cloud import NullCloud

_log = logging.getLogger(__name__)


class FolderCloud(NullCloud):
    """A `Cloud` that answers from the heartbeats: an instance lives from its boot to its last heartbeat."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def instances(self) -> list[CloudInstance]:
        """See `Cloud`."""
        return [_describe(document.value) for document in self._store.instances.scan().values()]

    def launch(self, intent: LaunchIntent) -> LaunchAnswer:
        """See `Cloud`.

        Raises:
            NotOffered: always: agents are started by hand.
        """
        raise NotOffered("a folder has no capacity to launch: agents are started by hand")

    def terminate(self, instances: Iterable[str]) -> None:
        """See `Cloud`.

        Raises:
            NotOffered: always, as for `launch`.
        """
        raise NotOffered("a folder has no capacity to end: agents are stopped by hand")

    def notify(self, settings: Notifications, subject: str, text: str, data: dict[str, Any]) -> None:
        """See `Cloud`: nothing is sent."""
        _log.warning("%s", subject)

    def trouble(self, error: Exception) -> Trouble:
        """See `Cloud`."""
        return Trouble.TRANSIENT if isinstance(error, OSError) else Trouble.REQUEST


def _describe(record: InstanceRecord) -> CloudInstance:
    ended = record.state is InstanceState.GONE
    return CloudInstance(
        instance_id=record.instance_id,
        instance_type=record.instance_type,
        zone=record.zone,
        market=record.market,
        role=record.role,
        launched_at=record.booted_at,
        phase=Phase.ENDED if ended else Phase.ALIVE,
        ended_at=record.updated_at if ended else None,
        interrupted=False if ended else None,
    )


class FolderMetadata:
    """Metadata without a cloud: the manifest is a file, and the command line gives the identity.

    Notices come through the store only.
    """

    def __init__(self, manifest_file: Path, identity: Identity) -> None:
        self._manifest_file = manifest_file
        self._identity = identity

    @property
    def where(self) -> str:
        """The file's path."""
        return str(self._manifest_file)

    def manifest(self) -> str:
        """Return the file's content."""
        try:
            return self._manifest_file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise MetadataError(f"the manifest cannot be read: {error}") from error

    def identity(self) -> Identity:
        """As given."""
        return self._identity

    def interruption(self) -> datetime | None:
        """Never: a folder gives no notice."""
        return None

    def rebalance(self) -> datetime | None:
        """Never."""
        return None

    def end(self) -> bool:
        """Does nothing: the machine belongs to the person who started the agent."""
        return False


class FolderProvider(PackageRules):
    """See `everspot_clouds.base.Provider`.

    The rules are those of the usual cloud: bills say what the same work would cost there, and its services have the
    secrets of jobs.
    """

    package = "everspot_clouds.aws"

    def metadata(self, clock: Clock, getenv: Callable[[str], str | None]) -> FolderMetadata:
        """See `Provider`.

        Raises:
            MetadataError: always. A person who starts an agent by hand has to give its identity.
        """
        raise MetadataError("a folder has no metadata service: start the agent with --manifest")

    def scheduling(self, manifest: Manifest, store: Store) -> FolderCloud:
        """See `Provider`."""
        return FolderCloud(store)

    def reading(self, manifest: Manifest, clock: Clock, tables: Sequence[PriceTable] = ()) -> None:
        """See `Provider`: the store already has everything."""

    def errors(self) -> tuple[type[Exception], ...]:
        """See `Provider`."""
        return ()

    @property
    def by_hand(self) -> bool:
        """See `Provider`."""
        return True

    def stop_within(self, market: Market) -> timedelta:
        """See `Provider`: as on the usual cloud."""
        from everspot_clouds.aws.rules import STOP

        return STOP

    def notice(self, manifest: Manifest) -> timedelta:
        """See `Provider`: as on the usual cloud."""
        from everspot_clouds.aws.rules import NOTICE

        return NOTICE

    def checks(self, region: str | None, manifest: Manifest | None, catalogue: Catalogue, clock: Clock) -> list[Check]:
        """See `Provider`. A folder has no checks beside those of the store."""
        return []

    def price_table(
        self, region: str, types: Iterable[str], as_of: datetime, page: Callable[[], None], *, gpu_types: bool = False
    ) -> PriceTable:
        """See `Provider`."""
        raise NotOffered("a folder has no price lists; this cluster is on a folder")

    def credentials(self, url: str, profile: str | None) -> None:
        """See `Provider`: the folder's file permissions decide."""

    def select_profile(self, profile: str, environment: MutableMapping[str, str]) -> None:
        """See `Provider`: a folder has no profiles."""

    def proof(self, region: str) -> Prover:
        """See `Provider`.

        Raises:
            NotOffered: always.
        """
        raise NotOffered("a folder gives its agents no identity that another cloud could verify")

    def peer_credentials(
        self, url: str, identity: str, audience: str, prove: Prover
    ) -> Callable[[], dict[str, Any]] | None:
        """See `Provider`: who may read the folder may use it."""

    def secrets(self, region: str) -> Callable[[str], str]:
        """See `Provider`: a reference names the service that holds the secret, for which the person who started the
        agent may have credentials."""
        from everspot_clouds.aws.secrets import AwsSecrets

        return AwsSecrets(region)

    def site(self, manifest: Manifest) -> Site:
        """See `Provider`."""
        raise NotOffered("there is no cloud to look into: this cluster is on a folder; stop its agents where they run")

    def remote_access(self, manifest: Manifest) -> RemoteAccess:
        """See `Provider`."""
        raise NotOffered("there is no cloud that opens an instance: this cluster is on a folder; log in to the machine")


PROVIDER: Provider = FolderProvider()
