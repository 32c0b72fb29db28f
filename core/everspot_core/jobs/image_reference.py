"""References to images of registries in a job's `image`: HOST/REPOSITORY@sha256:DIGEST, by digest only, so that every
attempt runs the same image."""

import re
from dataclasses import dataclass

_FORM = re.compile(
    r"(?P<host>[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)+)"
    r"/(?P<repository>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)@(?P<digest>sha256:[0-9a-f]{64})"
)
_LONGEST = 512


@dataclass(frozen=True, slots=True)
class RegistryImage:
    """An image in a registry.

    Attributes:
        host: of the registry.
        repository: the path of the image in it.
        digest: of its manifest, or of its index.
    """

    host: str
    repository: str
    digest: str

    @property
    def name(self) -> str:
        """Host and repository."""
        return f"{self.host}/{self.repository}"

    def is_in(self, repositories: list[str]) -> bool:
        """Return whether the image is in one of these repositories, HOST/REPOSITORY. A name that ends with a slash
        stands for all that begins with it."""
        return any(self.name == name or (name.endswith("/") and self.name.startswith(name)) for name in repositories)


def parse_registry_image(reference: str | None) -> RegistryImage | None:
    """Return the image of a registry that a job's `image` names; None if it names a dataset, or nothing."""
    match = _FORM.fullmatch(reference) if reference is not None and len(reference) <= _LONGEST else None
    return RegistryImage(match["host"], match["repository"], match["digest"]) if match is not None else None
