"""The inputs of an image, and the digests of its cached layers. tests/image has tests of the baked image."""

import json
import subprocess
import zipfile
from pathlib import Path

import pytest
from everspot_local.image import inputs
from everspot_local.image.bake import build_wheel, describe
from everspot_local.image.inputs import BAKE, Base, NotACheckout

ROOT = Path(__file__).resolve().parents[2]
BASE = Base()


def git(root: Path, *words: str) -> None:
    identity = ["-c", "user.name=Nobody", "-c", "user.email=nobody@example.com"]
    subprocess.run(["git", "-C", str(root), *identity, *words], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with the files that matter."""
    for name in ("core/a.py", "cli/b.py", "pyproject.toml", f"{BAKE}/provision.sh", f"{BAKE}/lock.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"# {name}\n")
    (tmp_path / ".gitignore").write_text("*.pyc\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "all")
    return tmp_path


def digests(root: Path, cloud: str = "aws") -> tuple[str, str]:
    """Return the digests of the dependency layer and of the product layer."""
    product = inputs.digest_product(root, BASE, cloud, inputs.commit(root))
    return inputs.digest_dependencies(root, BASE), product


def test_a_change_of_the_code_bakes_the_product_alone(checkout: Path) -> None:
    dependencies, product = digests(checkout)
    (checkout / "core/a.py").write_text("changed\n")
    assert digests(checkout)[0] == dependencies
    assert digests(checkout)[1] != product


@pytest.mark.parametrize("name", ["provision.sh", "lock.txt"])
def test_another_lock_or_provisioning_bakes_both(checkout: Path, name: str) -> None:
    before = digests(checkout)
    (checkout / BAKE / name).write_text("changed\n")
    assert not set(before) & set(digests(checkout))


def test_what_is_in_no_image_bakes_nothing(checkout: Path) -> None:
    before, commit = digests(checkout), inputs.commit(checkout)
    (checkout / "cli/b.py").write_text("changed\n")
    (checkout / "core/a.pyc").write_text("ignored\n")
    git(checkout, "commit", "--all", "--quiet", "--message", "the command")
    assert (digests(checkout), inputs.commit(checkout)) == (before, commit)


def test_an_image_is_of_one_cloud_and_of_one_base(checkout: Path) -> None:
    assert digests(checkout, "aws")[1] != digests(checkout, "gcp")[1]
    assert inputs.digest_dependencies(checkout, Base(suite="other")) != digests(checkout)[0]


def test_a_commit_with_changes_says_so(checkout: Path) -> None:
    commit = inputs.commit(checkout)
    (checkout / "core/new.py").write_text("new\n")
    assert inputs.commit(checkout) == f"{commit}-dirty"
    assert Path("core/new.py") in inputs.source_files(checkout, inputs.WHEEL)


def test_only_a_checkout_can_be_baked(tmp_path: Path) -> None:
    with pytest.raises(NotACheckout, match="is no checkout of Everspot"):
        inputs.source_files(tmp_path, inputs.WHEEL)


def test_the_wheel_of_an_image_has_its_packages_and_no_others_in_the_same_bytes_each_time(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    wheel, again = (build_wheel(ROOT, folder) for folder in folders)
    assert wheel.read_bytes() == again.read_bytes()
    packages = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist() if ".dist-info" not in name}
    assert packages == {"everspot_core", "everspot_store", "everspot_clouds", "everspot_scheduler", "everspot_train"}


def test_an_image_is_described_by_its_size_and_its_steps(tmp_path: Path) -> None:
    document = {"layers": ["/a", "/b"], "cloud": "aws", "commit": "0123abc", "digest": "ff", "mebibytes": [200, 5000],
                "seconds": {"product": 21.4, "self-test": 70.0}}  # fmt: skip
    (tmp_path / "image.json").write_text(json.dumps(document))
    assert describe(tmp_path) == "aws, commit 0123abc: 5,200 MiB (200 + 5,000); product 21 s, self-test 70 s"
