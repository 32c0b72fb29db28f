"""What speaks against images, pools and machines of the cluster."""

from everspot_core.doubts import Doubt, doubts

from everspot_cli.session import Session


def doubts_of(session: Session) -> list[Doubt]:
    """What is to be doubted by the faults of the last day. Launches are read only where there are any."""
    store = session.store
    faults = [doc.value for doc in store.faults.scan().values()]
    if not faults:
        return []
    launches = {name: doc.value for name, doc in store.launches.scan().items()}
    return doubts(faults, launches, session.now)


def grave(session: Session) -> str:
    """The doubts that explain why nothing starts, in one line; empty without."""
    return "; ".join(doubt.words for doubt in doubts_of(session) if doubt.grave)
