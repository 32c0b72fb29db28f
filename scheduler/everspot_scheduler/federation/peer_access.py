"""The default way in which a scheduler reaches peers and decides about moves."""

from everspot_clouds.peers import peer_credentials
from everspot_core.clock import Clock
from everspot_core.cluster.manifest import Manifest
from everspot_core.cluster.peers import Peer
from everspot_store import Store

from everspot_scheduler.federation.choosing import MoveChooser
from everspot_scheduler.federation.manager import PeerAccess


def default_peer_access(store: Store, manifest: Manifest) -> PeerAccess:
    """Return the peer access that opens each peer under the identity that the manifest gives this scheduler there.
    `manifest`: of the own cluster."""
    return PeerAccess(opener=lambda peer: open_peer(peer, manifest, store.clock), chooser=MoveChooser(store))


def open_peer(peer: Peer, own: Manifest, clock: Clock) -> Store:
    """Return the store of a peer, with the credentials of the peer's own cloud; the machine's credentials if the peer
    names no identity.

    Raises:
        StoreError: if it cannot be opened.
        CloudError: if this cluster's cloud cannot prove who its scheduler is.
    """
    credentials = peer_credentials(own.cloud, own.region, peer.control_url, peer.identity, peer.audience)
    return Store.open(peer.control_url, peer.data_url, clock=clock, credentials=credentials)
