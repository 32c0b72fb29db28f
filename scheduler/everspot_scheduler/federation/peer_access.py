"""How a scheduler reaches peers and decides about moves, unless it is told otherwise."""

from everspot_clouds.peers import peer_credentials
from everspot_core.clock import Clock
from everspot_core.manifest import Manifest
from everspot_core.peers import Peer
from everspot_store import Store

from everspot_scheduler.federation.choosing import Choosing
from everspot_scheduler.federation.manager import PeerAccess


def default_peer_access(store: Store, manifest: Manifest) -> PeerAccess:
    """Return peers are opened as who the manifest says that this scheduler is there. `manifest`: of the own cluster."""
    return PeerAccess(opener=lambda peer: open_peer(peer, manifest, store.clock), chooser=Choosing(store))


def open_peer(peer: Peer, own: Manifest, clock: Clock) -> Store:
    """Return the store of a peer, with the peer's own cloud's credentials; those of the machine if it names no
    identity.

    Raises:
        StoreError: if it cannot be opened.
        CloudError: if this cluster's cloud can prove to nobody who its scheduler is.
    """
    credentials = peer_credentials(own.cloud, own.region, peer.control_url, peer.identity, peer.audience)
    return Store.open(peer.control_url, peer.data_url, clock=clock, credentials=credentials)
