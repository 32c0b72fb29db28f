"""Two bakes of one commit, above the same dependencies: what differs between their trees."""

import hashlib
import os
import stat
from pathlib import Path

import pytest
from everspot_local.image.bake import bake
from everspot_local.image.inputs import Base
from everspot_local.machines import contained
from image_source import CACHE, ROOT

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]
DIFFERING = {"var/cache/ldconfig/aux-cache"}
"""What may have another content: ldconfig writes inode numbers and dates of libraries into it."""
DATE_BYTES = slice(8, 12)
"""Of a compiled file of Python, the date of its source (PEP 552)."""
DAY_FIELD = 2
"""Of a line of /etc/shadow: the day of the password's last change (shadow(5))."""


def read_content(path: Path, name: str) -> bytes:
    """Return a file's content without its dates."""
    content = path.read_bytes()
    if name.endswith(".pyc"):
        return content[: DATE_BYTES.start] + content[DATE_BYTES.stop :]
    if name in ("etc/shadow", "etc/shadow-"):
        lines = [line.split(b":") for line in content.splitlines()]
        return b"\n".join(b":".join(line[:DAY_FIELD] + line[DAY_FIELD + 1 :]) for line in lines)
    return content


def describe_tree(tree: Path) -> dict[str, tuple[object, ...]]:
    """Return type and mode, owner, device number and digest of all that a layer holds, by path."""
    entries: dict[str, tuple[object, ...]] = {}
    for folder, folders, files in os.walk(tree):
        for each in (*folders, *files):
            path = Path(folder, each)
            name = str(path.relative_to(tree))
            status = path.lstat()
            if path.is_symlink():
                content = os.fsencode(path.readlink())
            else:
                content = read_content(path, name) if stat.S_ISREG(status.st_mode) else b""
            digest = hashlib.sha256(content).hexdigest()
            entries[name] = (stat.filemode(status.st_mode), status.st_uid, status.st_gid, status.st_rdev, digest)
    return entries


def test_two_bakes_of_a_commit_differ_in_dates_only(tmp_path: Path, image: Path) -> None:
    layers = contained.read_layers(image)
    (tmp_path / "layers").mkdir()
    for layer in layers[:-1]:
        (tmp_path / "layers" / layer.name).symlink_to(CACHE / "layers" / layer.name)
    again = bake(ROOT, tmp_path, "aws", Base(), print)
    first, second = (describe_tree(contained.read_layers(folder)[-1]) for folder in (image, again))
    assert len(first) > 100 and "opt/everspot/image.json" in first
    names = [name for name in first | second if first.get(name) != second.get(name)]
    assert {name: (first.get(name), second.get(name)) for name in names if name not in DIFFERING} == {}
    # Those are in both, with the same mode and owner.
    assert {name: first[name][:-1] for name in DIFFERING} == {name: second[name][:-1] for name in DIFFERING}
    readme = (ROOT / "training_image/bake/README.md").read_text()
    assert all(f"`/{name}`" in readme for name in DIFFERING)
