"""How a scheduler reaches peers and decides about moves, unless it is told otherwise."""

from everspot_core.clock import Clock
from everspot_core.manifest import Manifest
from everspot_core.peers import Peer
from everspot_store import Store

from everspot_scheduler.federation.choosing import choose
from everspot_scheduler.federation.desk import Ways


def usual_ways(manifest: Manifest, clock: Clock) -> Ways:
    """Peers are opened with the credentials of the machine."""

    def opener(peer: Peer) -> Store:
        return Store.open(peer.control_url, peer.data_url, clock=clock)

    return Ways(opener=opener, chooser=choose)
