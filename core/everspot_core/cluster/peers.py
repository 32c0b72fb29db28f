"""The peers of a cluster: the clusters to which it may send jobs, and from which it accepts jobs."""

from collections.abc import Collection

from pydantic import Field

from everspot_core.documents import Duration, Frozen


class Peer(Frozen):
    """Another cluster of the federation, as this cluster's manifest names it."""

    name: str = Field(min_length=1, description="The cluster's name, as its own `cluster.json` says it.")
    cloud: str = Field(pattern=r"^[a-z][a-z0-9-]*$", description="The cloud of its instances.")
    control_url: str = Field(description="Its control bucket, a URL as of this manifest.")
    data_url: str | None = Field(default=None, description="Its data bucket; None: the one that its manifest names.")
    identity: str = Field(
        default="",
        description="Who this cluster's scheduler becomes there: a role's ARN or a service account's email. Empty: it "
        "uses the credentials of its machine.",
    )
    audience: str = Field(
        default="",
        description="To whom its own cloud makes the proof of its identity out. Empty: what the peer's cloud expects.",
    )
    egress_usd_per_gb: float = Field(
        default=0.0, ge=0, allow_inf_nan=False, description="The price of 10^9 bytes sent between the two clusters."
    )
    patience: Duration = Field(
        default="10m",
        validate_default=True,
        description="An offer that it has not answered for this long, in real time, is withdrawn.",
    )

    def mistaken(self, cluster: str | None) -> str:
        """Return the reason why the cluster behind the URL is not the peer; empty if it is. `cluster`: its name by its
        own manifest; None: it has no manifest."""
        if cluster is None:
            return "it has no cluster.json"
        return "" if cluster == self.name else f"it calls itself {cluster}"


def reachable(peer: Peer, clouds: Collection[str], clusters: Collection[str]) -> bool:
    """Return whether a job that names these clouds and clusters may visit the peer. A job that names none stays at
    home."""
    if not clouds and not clusters:
        return False
    return (not clouds or peer.cloud in clouds) and (not clusters or peer.name in clusters)
