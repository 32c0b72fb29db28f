"""The bytes that a job needs in another cluster, those that are there already, and what sending the rest costs.

A job needs its newest checkpoint and the files of its datasets and its image. Files are stored by their digests, so a
cluster that has a file never gets it again. A job that goes from one host to another passes through its home: only
home has access to both.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from everspot_core.counting import size


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The bytes that a job needs in a cluster.

    Attributes:
        checkpoint_bytes: of its newest checkpoint, which is sent with every move.
        data_bytes: of its datasets and its image.
        present_bytes: those of `data_bytes` that are in the cluster already.
    """

    checkpoint_bytes: int = 0
    data_bytes: int = 0
    present_bytes: int = 0

    @property
    def sent_bytes(self) -> int:
        """The bytes that a move there sends."""
        return self.checkpoint_bytes + max(0, self.data_bytes - self.present_bytes)


NO_INPUTS = Inputs()


def measure_files(needed: Iterable[Mapping[str, int]], present: Collection[str]) -> Inputs:
    """Return the bytes of some datasets, and how many of them are present. A file of two datasets counts once.

    Args:
        needed: The files of each dataset: bytes by digest.
        present: The digests of the files that the cluster has.
    """
    files = {digest: count for dataset in needed for digest, count in dataset.items()}
    return Inputs(
        data_bytes=sum(files.values()),
        present_bytes=sum(count for digest, count in files.items() if digest in present),
    )


def describe_inputs(inputs: Inputs, usd: float) -> str:
    """Return what is sent there and what that costs. Empty for a job that needs nothing."""
    if not inputs.sent_bytes and not inputs.present_bytes:
        return ""
    if not inputs.sent_bytes:
        return f"nothing is sent: all {size(inputs.present_bytes)} of its data are there"
    present = f"; {size(inputs.present_bytes)} of its data are there already" if inputs.present_bytes else ""
    return f"{size(inputs.sent_bytes)} are sent there for {describe_price(usd)}{present}"


def describe_price(usd: float) -> str:
    """Return the price of sending something. What costs a little does not look free."""
    return "less than $0.01" if 0 < usd < 0.005 else f"${usd:,.2f}"
