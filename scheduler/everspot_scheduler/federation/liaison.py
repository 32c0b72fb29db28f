"""How a scheduler reaches peers and decides about moves, unless it is told otherwise."""

from everspot_core.peers import Peer
from everspot_store import Store

from everspot_scheduler.federation.choosing import Choosing
from everspot_scheduler.federation.desk import Liaison


def usual_liaison(store: Store) -> Liaison:
    """Peers are opened with the credentials of the machine."""

    def opener(peer: Peer) -> Store:
        return Store.open(peer.control_url, peer.data_url, clock=store.clock)

    return Liaison(opener=opener, chooser=Choosing(store))
