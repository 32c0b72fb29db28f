"""The data that a job reads, for a dry run: where it is, and what it costs to send it to another region or cluster."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from everspot_clouds.egress_prices import egress_usd_per_gb
from everspot_clouds.naming import cloud_of_region
from everspot_core.counting import size
from everspot_core.federation.data_locality import describe_price, measure_files
from everspot_core.federation.migration import GIGABYTE
from everspot_core.jobs.image_reference import parse_registry_image
from everspot_core.jobs.job import JobSubmission
from everspot_store import Dataset, DatasetMissing, StoreDenied

from everspot_cli.dependencies import resolve_dependencies
from everspot_cli.errors import CliError
from everspot_cli.job_inputs import pin
from everspot_cli.session import Session


@dataclass(frozen=True)
class JobData:
    """The data of a job.

    Attributes:
        datasets: Its datasets, streamed ones included, and its image.
        output_bytes: Of the outputs of the jobs of `after`, as far as they are there; None: this user may not list
            them.
        cloud: Of the cluster, whose bucket has the data.
        region: Of the cluster; empty if it has none.
    """

    datasets: tuple[Dataset, ...]
    output_bytes: int | None
    cloud: str
    region: str

    @property
    def datasets_bytes(self) -> int:
        """Bytes of the datasets and the image, each file once."""
        return measure_files([d.sizes for d in self.datasets], ()).data_bytes

    @property
    def size(self) -> int:
        """Bytes that a job in another region would have to get."""
        return self.datasets_bytes + (self.output_bytes or 0)

    def usd_to(self, region: str) -> float | None:
        """Return the list price of sending the data to a region once; None for a region of no known cloud."""
        cloud = cloud_of_region(region)
        if not self.size or region == self.region:
            return 0.0
        if cloud is None or not self.region:
            return None
        own = cloud_of_region(self.region) or self.cloud
        return self.size / GIGABYTE * egress_usd_per_gb(own, cloud, same_region=False)

    def row(self) -> dict[str, Any]:
        """Return the data as JSON."""
        return {"bytes": self.size, "region": self.region or None, "output_bytes": self.output_bytes, "egress_usd": 0.0}

    def notes(self, regions: Iterable[str]) -> list[str]:
        """Return where the data is, and what it costs to send it to the others of some regions."""
        if not self.size:
            return []
        where = f" in {self.region}" if self.region else ""
        notes = [f"Data: {size(self.size)} in the cluster's own bucket{where}, which costs no egress."]
        for region in sorted({*regions} - {self.region}):
            usd = self.usd_to(region)
            if self.region and usd is not None:
                notes.append(f"Sending it to {region} costs {describe_price(usd)} once, beside the prices above.")
        return notes


def read_data(session: Session, submission: JobSubmission) -> JobData:
    """Return the data of a job that is about to be submitted. Another check names missing datasets and jobs.

    Raises:
        StoreError: if the cluster's store failed.
    """
    image = submission.spec.image
    images = [image] if image is not None and parse_registry_image(image) is None else []
    references = (*submission.spec.datasets, *images)
    ids = submission.datasets or [id for reference in references if (id := pin(session, reference))]
    datasets = []
    for id in dict.fromkeys(ids):
        with suppress(DatasetMissing):
            datasets.append(session.store.datasets.find_reference(id))
    return JobData(
        datasets=tuple(datasets),
        output_bytes=_output_bytes(session, submission),
        cloud=session.manifest.cloud,
        region=session.manifest.region or "",
    )


def _output_bytes(session: Session, submission: JobSubmission) -> int | None:
    """Return the bytes of the outputs that the job gets; None if this user may not list them."""
    try:
        preceding = resolve_dependencies(session, submission.spec.name, submission)
    except CliError:
        return 0
    producers = [session.store.producer(earlier.job_id) for earlier in preceding]
    try:
        return sum(output.size for job in producers for output in session.store.outputs(job).list())
    except StoreDenied:
        return None
