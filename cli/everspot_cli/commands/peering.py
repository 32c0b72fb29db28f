"""Names and unnames peers of a cluster on a folder. On a cloud its stack does."""

from typing import TYPE_CHECKING

from everspot_cli.errors import CliError, Exit
from everspot_cli.session import Session
from everspot_cli.target import as_url

if TYPE_CHECKING:
    from everspot_core.cluster.manifest import Manifest
    from everspot_core.cluster.peers import Peer

FOLDER = "folder"


def add(session: Session, url: str, egress: float) -> None:
    """Name the cluster behind a URL and this cluster as peers of each other. A peer that is named already gets the new
    figures.

    Raises:
        CliError: if one of the two is not on a folder, or there is no cluster behind the URL.
        StoreError: if a description cannot be read or written.
    """
    from everspot_core.cluster.peers import Peer

    _need_folder(session.manifest)
    url = as_url(url)
    peer_store = session.peer_store(Peer(name=url, cloud=FOLDER, control_url=url, data_url=url))
    doc = peer_store.read_manifest()
    if doc is None:
        raise CliError(f"there is no cluster at {url}: it has no cluster.json", Exit.NOT_FOUND)
    manifest = doc.value
    if manifest.cluster == session.manifest.cluster:
        raise CliError(f"{manifest.cluster} is this cluster itself, or has its name", Exit.USER)
    _need_folder(manifest)
    own = session.manifest
    here = Peer(name=own.cluster, cloud=own.cloud, control_url=session.store_url, egress_usd_per_gb=egress)
    # The peer first: it refuses jobs of a cluster that it does not name.
    others = [p for p in manifest.federation if p.name != here.name]
    peer_store.write_manifest(manifest.model_copy(update={"federation": (*others, here)}))
    peer = Peer(name=manifest.cluster, cloud=manifest.cloud, control_url=url, egress_usd_per_gb=egress)
    _write(session, [*(p for p in own.federation if p.name != peer.name), peer])


def remove(session: Session, name: str) -> None:
    """Remove a peer. It still names this cluster, until it is removed there, too.

    Raises:
        CliError: if this cluster is not on a folder, no peer has the name, or jobs are there.
    """
    _need_folder(session.manifest)
    peers = session.manifest.federation
    if name not in [peer.name for peer in peers]:
        names = ", ".join(peer.name for peer in peers) or "none"
        raise CliError(f"no peer is called {name}: there is {names}", Exit.NOT_FOUND)
    records = session.store.records.scan().items()
    away_jobs = sorted(job for job, doc in records if doc.value.away is not None and doc.value.away.cluster == name)
    if away_jobs:
        raise CliError(
            f"{', '.join(away_jobs)} would be lost sight of: away at {name}", hint="drain this cluster, or wait"
        )
    _write(session, [peer for peer in peers if peer.name != name])


def _need_folder(manifest: "Manifest") -> None:
    if manifest.cloud != FOLDER:
        raise CliError(
            f"the peers of {manifest.cluster}, a cluster on {manifest.cloud}, are declared in its stack",
            hint="`federation` in the stack's settings",
        )


def _write(session: Session, peers: "list[Peer]") -> None:
    session.store.write_manifest(session.manifest.model_copy(update={"federation": tuple(peers)}))
    del session.manifest  # so that it is read again
