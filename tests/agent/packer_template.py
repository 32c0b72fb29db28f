"""The Packer templates, for Debian's Packer 1.6.6: the last one with its builders inside."""

from pathlib import Path

BAKE = Path(__file__).parents[2] / "training_image" / "bake"
# What Debian's Packer is too old for. test_agent_bake.py holds it to the plugin's own specification.
YOUNGER = {
    "everspot.pkr.hcl": ("packer {", 'data "amazon-ami" "base" {', '  imds_support = "v2.0"\n', "  metadata_options {"),
    "everspot-gcp.pkr.hcl": ("packer {",),
}


def block(text: str, opening: str) -> str:
    """Return a block of a template with its line break, from the line that opens it."""
    start = text.index(opening)
    end = text.index("\n", text.index("\n" + " " * (len(opening) - len(opening.lstrip())) + "}", start) + 1)
    return text[start : end + 1]


def without_younger(text: str, file_name: str) -> str:
    """Return a template without the parts that Debian's Packer is too old for."""
    for opening in YOUNGER[file_name]:
        text = text.replace(block(text, opening) if opening.endswith("{") else opening, "")
    return text
