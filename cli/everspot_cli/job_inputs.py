"""A job's needs besides its code: exact versions of its datasets, and the wheels of its requirements."""

import json
import tempfile
from pathlib import Path
from typing import Any

from everspot_core.counting import counted
from everspot_core.jobs.image_layout import GZIP, MOST_DOCUMENT, count_unreadable_layers
from everspot_core.jobs.image_reference import parse_registry_image
from everspot_core.jobs.job import JobSubmission

from everspot_cli.errors import CliError, Exit
from everspot_cli.session import Session

PYTHON = "3.12"
"""Python version of the images that training_image/bake makes. It is used if no instance has reported another one."""

INPUTS = ("after", "code_digest", "datasets", "wheels")
"""The fields of a submission that decide what a job reads besides its specification."""


def copy_inputs(submission: JobSubmission, other: JobSubmission) -> JobSubmission:
    """Return the submission with the code, datasets, wheels and producers of another job."""
    return submission.model_copy(update={name: getattr(other, name) for name in INPUTS})


def attach_inputs(session: Session, submission: JobSubmission) -> JobSubmission:
    """Return the submission with its datasets pinned and its wheels uploaded. Only what the job needs is read and sent.

    Raises:
        CliError: naming every dataset that does not exist, or what is wrong with the requirements.
    """
    spec = submission.spec
    if submission.datasets or submission.wheels:  # another attempt at a job: it gets what the first one got
        return submission
    pinned = _pin_datasets(session, "the job", submission)
    submission = submission.model_copy(update={"datasets": pinned})
    if spec.requirements is None:
        return submission
    from everspot_cli.wheels import fetch_wheels

    def notify(words: str) -> None:
        if not session.json:
            session.errors.print(words, style="dim")

    wheels = fetch_wheels(
        session.store,
        Path(spec.requirements),
        python=_python(session),
        archs=_archs(session),
        notify=notify,
    )
    return submission.model_copy(update={"wheels": wheels})


def refuse_missing(session: Session, file_name: str, submission: JobSubmission) -> None:
    """Refuse a job whose datasets do not exist. `file_name`: the job's file.

    Raises:
        CliError: naming every missing one.
    """
    if not submission.datasets:  # else another attempt, which gets what the first one got
        _pin_datasets(session, file_name, submission)


def _pin_datasets(session: Session, file_name: str, submission: JobSubmission) -> list[str]:
    spec = submission.spec
    references = {f"datasets[{number}]": reference for number, reference in enumerate(spec.datasets)}
    if spec.image is not None and parse_registry_image(spec.image) is None:
        references["image"] = spec.image
    pins = {field: pin(session, reference) for field, reference in references.items()}
    missing = [
        {"field": field, "problem": f"there is no dataset {references[field]}"}
        for field, pinned in pins.items()
        if pinned is None
    ]
    if missing:
        hint = "everspot data put DIR NAME; everspot data"
        raise CliError(f"{file_name}: datasets are missing", Exit.NOT_FOUND, hint=hint, problems=missing)
    if (image := pins.get("image")) is not None and not _is_image(session, image):
        problem = f"{spec.image} has no index.json: upload a folder in OCI's image layout, docs/guide/images.md"
        raise CliError(f"{file_name}: a field is wrong", problems=[{"field": "image", "problem": problem}])
    if image is not None and (layers := _count_unreadable_layers(session, image)):
        problem = f"{counted(layers, 'layer')} of {spec.image} compressed with zstd: build it with gzip, by {GZIP}"
        raise CliError(f"{file_name}: a field is wrong", problems=[{"field": "image", "problem": problem}])
    return list(dict.fromkeys(pinned for pinned in pins.values() if pinned is not None))


def _is_image(session: Session, reference: str) -> bool:
    return any(file.path == "index.json" for file in session.store.datasets.find_reference(reference).files)


def _count_unreadable_layers(session: Session, reference: str) -> int:
    """Return the number of layers of an image that no instance can read, by the documents in its layout."""
    datasets = session.store.datasets
    listing = datasets.find_reference(reference).files
    files = {f"sha256:{file.sha256}": file for file in listing}
    index = next(file for file in listing if file.path == "index.json")

    def read(digest: str) -> Any:
        if (file := files.get(digest)) is None or file.size > MOST_DOCUMENT:
            return None
        with tempfile.TemporaryDirectory(prefix="everspot-image-") as scratch:
            datasets.download(file.sha256, path := Path(scratch, "document"))
            try:
                return json.loads(path.read_bytes())
            except ValueError:
                return None

    return count_unreadable_layers(read(f"sha256:{index.sha256}"), read)


def pin(session: Session, reference: str) -> str | None:
    """Resolve a dataset's name, or the beginning of a version, to `name@digest`. None if it does not exist."""
    from everspot_store import DatasetMissing

    try:
        return session.store.datasets.find_reference(reference).id
    except DatasetMissing:
        return None


def _python(session: Session) -> str:
    """Return the Python version of the cluster's instances, by the newest report."""
    beats = sorted((doc.value for doc in session.store.instances.scan().values()), key=lambda beat: beat.updated_at)
    return next((beat.python for beat in reversed(beats) if beat.python), PYTHON)


def _archs(session: Session) -> list[str]:
    """Return the architectures of the declared types. Without declared types: those of the instances that the cluster
    has had, or x86_64."""
    catalogue, fleet = session.catalogue, session.manifest.fleet
    if fleet is not None:
        names = set(fleet.types)
    else:
        names = {doc.value.instance_type for doc in session.store.instances.scan().values()}
        names |= {kind.name for kind in session.manifest.instance_types}
    archs = sorted({catalogue.types[name].arch for name in names if name in catalogue.types})
    return archs or ["x86_64"]
