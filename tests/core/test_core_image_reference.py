"""References to images of registries."""

import pytest
from everspot_core.jobs.image_reference import RegistryImage, parse_registry_image

DIGEST = f"sha256:{'a' * 64}"


@pytest.mark.parametrize(
    ("reference", "image"),
    [
        (f"registry.example.com/team/train@{DIGEST}", RegistryImage("registry.example.com", "team/train", DIGEST)),
        ("registry.example.com/team/train:latest", None),  # a tag is another image tomorrow
        (f"registry.example.com/team/train:latest@{DIGEST}", None),
        (f"registry.example.com/../train@{DIGEST}", None),
        (f"user:password@registry.example.com/train@{DIGEST}", None),
        (f"registry.example.com:5000/train@{DIGEST}", None),
        (f"train@{DIGEST}", None),
        ("my-image@abcdef", None),
        (None, None),
    ],
)
def test_an_image_of_a_registry_is_named_by_host_and_digest(reference: str | None, image: RegistryImage | None) -> None:
    assert parse_registry_image(reference) == image


@pytest.mark.parametrize(
    ("repositories", "allowed"),
    [
        (["registry.example.com/team/train"], True),
        (["registry.example.com/team/"], True),
        (["registry.example.com/team"], False),
        (["registry.example.com/team/tra"], False),
        (["registry.example.com/team/train/"], False),
        ([], False),
    ],
)
def test_a_repository_is_meant_alone_unless_its_name_ends_with_a_slash(repositories: list[str], allowed: bool) -> None:
    assert RegistryImage("registry.example.com", "team/train", DIGEST).is_in(repositories) is allowed
