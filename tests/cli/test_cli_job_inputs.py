"""Inputs of a job: datasets by version, requirements as wheels; and its outputs by `pull`."""

import hashlib
import json
import os
import re
import sys
import zipfile
from pathlib import Path

import pytest
from everspot_cli import wheels
from everspot_cli.errors import CliError
from everspot_cli.wheels import parse_lock_file

JOB = "name: mine\nentrypoint: [train.py]\ncode: src\nresources: {vcpus: 1, memory_gib: 1}\n"


@pytest.fixture
def job(tmp_path: Path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").write_text("print(1)\n")

    def write(text: str) -> str:
        path = tmp_path / "job.yaml"
        path.write_text(JOB + text)
        return str(path)

    return write


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for its only index."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name, tag in (
        ("bouquet", "py3-none-any"),
        ("vase", "cp27-cp27m-win32"),
        ("old", "py3-none-manylinux_2_24_x86_64"),
        ("nvidia_dali_cuda120", "py3-none-any"),
    ):
        with zipfile.ZipFile(folder / f"{name}-1.0-{tag}.whl", "w") as archive:
            archive.writestr(f"{name}.py", "")
            info = f"{name}-1.0.dist-info"
            archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
            archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def submitted(world):
    (doc,) = world.store.jobs.scan().values()
    return doc.value


def test_a_dataset_is_put_once_and_a_job_gets_its_newest_version_by_digest(world, tmp_path, job):
    folder = tmp_path / "flowers"
    folder.mkdir()
    (folder / "rose.txt").write_text("red")
    first = world.run("--json", "data", "put", str(folder), "flowers").json
    assert (first["files"], first["bytes"], first["sent_bytes"]) == (1, 3, 3)
    assert world.run("--json", "data", "put", str(folder), "flowers").json == {**first, "sent_bytes": 0}
    (folder / "tulip.txt").write_text("yellow")
    second = world.run("--json", "data", "put", str(folder), "flowers").json
    assert second["sent_bytes"] == 6
    world.run("submit", job("datasets: [flowers]\n"))
    assert len(submitted(world).datasets) == 1
    assert submitted(world).datasets[0].startswith("flowers@")
    assert {row["digest"] for row in world.run("--json", "data").json} == {
        first["dataset"].partition("@")[2], second["dataset"].partition("@")[2],
    }  # fmt: skip
    assert "flowers" in world.run("data").out


def test_an_image_is_a_dataset_that_the_job_gets_by_its_digest(world, tmp_path, job):
    """Given an image and a dataset, when the job is submitted, then both are written down with their digests."""
    layout = tmp_path / "layout"
    layout.mkdir()
    (layout / "index.json").write_text("{}")
    image = world.run("--json", "data", "put", str(layout), "torch-nightly").json
    (layout / "index.json").rename(layout / "words.txt")
    words = world.run("--json", "data", "put", str(layout), "words").json
    assert world.run("submit", job("image: torch-nightly\ndatasets: [words]\n")).code == 0
    assert submitted(world).datasets == [words["dataset"], image["dataset"]]
    for reference, problem in (
        ("none", "image: there is no dataset none"),
        ("words", "image: words has no index.json: upload a folder in OCI's image layout"),
        ("ghcr.io/a/b:latest", "is neither a dataset, `name` or `name@digest`, nor an image of a registry, ACCOUNT"),
        (f"ghcr.io/a/b@sha256:{'a' * 64}", "or LOCATION-docker.pkg.dev/PROJECT/REPOSITORY/IMAGE@sha256:DIGEST"),
    ):
        refused = world.run("submit", job(f"image: {reference}\n"))
        assert refused.code != 0 and problem in refused.err
    assert len(list(world.store.jobs.names())) == 1


@pytest.mark.parametrize(
    ("compressions", "refused"),
    [(["zstd"], "1 layer of flowers compressed with zstd: build it with gzip"), (["gzip"], ""), (["zstd", "gzip"], "")],
)
def test_an_image_that_no_instance_can_read_is_refused_before_it_is_paid_for(
    world, tmp_path, job, compressions, refused
):
    """Each of the processors' images has a layer of this compression."""
    layout, manifests = tmp_path / "layout", []
    (blobs := layout / "blobs" / "sha256").mkdir(parents=True)
    for architecture, compression in zip(("amd64", "arm64"), compressions, strict=False):
        layer = {"mediaType": f"application/vnd.oci.image.layer.v1.tar+{compression}", "digest": "sha256:1", "size": 1}
        manifest = json.dumps({"schemaVersion": 2, "layers": [layer]}).encode()
        digest = hashlib.sha256(manifest).hexdigest()
        (blobs / digest).write_bytes(manifest)
        media_type = "application/vnd.oci.image.manifest.v1+json"
        platform = {"architecture": architecture, "os": "linux"}
        manifests.append({"mediaType": media_type, "digest": f"sha256:{digest}", "platform": platform})
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": manifests}))
    world.run("data", "put", str(layout), "flowers")
    submission = world.run("submit", job("image: flowers\n"))
    assert (submission.code != 0) == bool(refused) and refused in submission.err


def test_what_an_image_does_not_go_with_is_refused_by_its_field(world, tmp_path, job):
    (tmp_path / "x.lock").touch()
    file = job("image: a\nsetup: [make]\nrequirements: x.lock\n")
    refused = world.run("submit", file)
    assert refused.code == 1 and "2 fields are wrong" in refused.err
    for problem in (
        "setup: is for the machine's own Python: install it in the image",
        "requirements: is for the machine's own Python",
    ):
        assert problem in refused.err


def test_every_dataset_that_is_not_there_is_named_before_anything_is_written(world, job):
    answer = world.run("--json", "submit", job("datasets: [roses, tulips@abcdef]\n"))
    assert answer.code == 3
    fields = {p["field"]: p["problem"] for p in json.loads(answer.err)["problems"]}
    assert fields == {"datasets[0]": "there is no dataset roses", "datasets[1]": "there is no dataset tulips@abcdef"}
    assert world.store.jobs.scan() == {}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(("data", "put"), 2), (("data", "put", "/nowhere", "x"), 1), (("data", "put", "/tmp", "No Name"), 1)],
)
def test_a_refused_upload_is_an_error(world, arguments, code):
    answer = world.run(*arguments)
    assert answer.code == code
    assert "Traceback" not in answer.err


def test_a_lock_file_becomes_wheels_and_the_image_brings_torch(world, index, tmp_path, job):
    (tmp_path / "req.txt").write_text(
        "# made by a tool\nbouquet==1.0 \\\n    # via nothing\ntorch==2.15.0\n-i https://x/\n"
    )
    answer = world.run("--json", "submit", job("requirements: req.txt\n"))
    assert (answer.code, answer.err) == (0, "")
    (wheel,) = submitted(world).wheels
    assert wheel.name == "bouquet-1.0-py3-none-any.whl"
    assert world.store.data.download(wheel.key, tmp_path / "there") == wheel.sha256
    assert submitted(world).wheels == [wheel]


@pytest.mark.parametrize(
    ("lock", "fetched"),
    [
        ('bouquet==1.0 ; python_full_version >= "3.12"\n', ["bouquet"]),
        ("bouquet==1.0 ; sys_platform == 'linux' and platform_machine == 'x86_64'\nold==1.0\n", ["bouquet", "old"]),
        ("bouquet==1.0\nvase==1.0 ; sys_platform == 'darwin' or python_version < '3.12'\n", ["bouquet"]),
        ("bouquet==1.0 ; python_full_version >= '3.12.4'\n", ["bouquet"]),
        ("vase==1.0 ; platform_machine == 'arm64'\n", []),
        ("nvidia-dali-cuda120==1.0\ntorch==2.15.0\nNVIDIA_cublas-cu12==12.1\n", ["nvidia_dali_cuda120"]),
    ],
)
def test_the_packages_are_those_that_an_instance_needs(world, index, tmp_path, job, lock, fetched):
    """Given markers and tags, when a job is submitted, then those of a Linux instance with Python 3.12 decide, and not
    those of this machine."""
    (tmp_path / "req.txt").write_text(lock)
    answer = world.run("--json", "submit", job("requirements: req.txt\n"))
    assert answer.code == 0, answer.err
    assert [wheel.name.partition("-")[0] for wheel in submitted(world).wheels] == fetched
    replaced = [warning for warning in answer.json["warnings"] if "the image's own versions" in warning]
    assert replaced == (
        ["requirements: NVIDIA_cublas-cu12, torch: the image's own versions are used instead"]
        if "torch" in lock
        else []
    )


def test_packages_are_left_out_only_if_the_image_has_them():
    lock = Path(__file__).parents[2] / "training_image/bake/lock.txt"
    locked = re.findall(r"^((?:torch|triton|cuda-|nvidia-)[^=]*)==", lock.read_text(), re.MULTILINE)
    assert {re.sub(r"-cu\d+$", "", name) for name in locked} == wheels.IMAGE_PACKAGES - {"everspot"}


def test_a_package_without_a_fitting_wheel_is_named_before_anything_is_written(world, index, tmp_path, job):
    (tmp_path / "req.txt").write_text("vase==1.0\n")
    answer = world.run("submit", job("requirements: req.txt\n"))
    assert answer.code == 1
    assert "cannot be downloaded as wheels for Python 3.12 on Linux x86_64" in answer.err
    assert "vase" in answer.err
    assert world.store.jobs.scan() == {}


def test_a_file_that_pins_nothing_is_no_lock_file():
    with pytest.raises(CliError) as refused:
        parse_lock_file(
            "bouquet\nvase>=1.0\n-r other.txt\ngit+https://x/y\npot==1.0 ; python_version > '3'\n", Path("req.txt")
        )
    assert [p["field"] for p in refused.value.problems] == [f"requirement {n}" for n in (1, 2, 3, 4)]


def test_hashes_stay_and_options_of_the_index_go():
    text = "--index-url https://x/\nbouquet==1.0 \\\n  --hash=sha256:ab \\\n  --hash=sha256:cd\nnvidia-nccl-cu13==2.0\n"
    lines, image_packages = parse_lock_file(text, Path("req.txt"))
    assert lines == ["bouquet==1.0 --hash=sha256:ab --hash=sha256:cd"]
    assert image_packages == ["nvidia-nccl-cu13"]


def test_outputs_are_pulled_whole_or_by_path_the_newest_of_each(world, tmp_path, job):
    world.run("submit", job(""))
    job_id = submitted(world).job_id
    for epoch, files in ((1, {"a.txt": "old", "plots/b.txt": "1"}), (2, {"a.txt": "new"})):
        folder = tmp_path / str(epoch)
        (folder / "plots").mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_text(text)
        assert world.store.outputs(job_id).keep(epoch, folder, lambda: True) == (len(files), {})
    answer = world.run("--json", "pull", job_id[:8], "--to", str(tmp_path / "all")).json
    assert [(f["path"], f["attempt"]) for f in answer["files"]] == [("a.txt", 2), ("plots/b.txt", 1)]
    assert Path(answer["folder"], "a.txt").read_text() == "new"
    world.run("pull", job_id, "plots", "--to", str(tmp_path / "some"))
    assert [p.name for p in (tmp_path / "some").rglob("*.txt")] == ["b.txt"]
    answer = world.run("pull", job_id, "nothing")
    assert answer.code == 3
    assert f"{job_id} has no nothing among the outputs" in answer.err
    assert "its outputs are a.txt, plots/b.txt" in answer.err


def test_a_folder_that_became_a_file_is_named_and_the_rest_is_pulled(world, tmp_path):
    world.submit("a")
    for epoch, path in ((1, "model/weights.pt"), (2, "model"), (2, "z.txt")):
        world.store.data.put(f"jobs/a/outputs/{epoch:06d}/{path}", path.encode())
    answer = world.run("pull", "a", "--to", str(tmp_path / "out"))
    assert answer.code == 1 and "model/weights.pt" in answer.err
    assert (tmp_path / "out" / "a" / "z.txt").read_text() == "z.txt"
    assert (tmp_path / "out" / "a" / "model").read_text() == "model"
    shown = world.run("--json", "pull", "a", "--to", str(tmp_path / "json"))
    assert shown.code == 1 and [file["path"] for file in shown.json["files"]] == ["model", "z.txt"]


def test_a_job_without_outputs_says_whether_there_will_be_any(world):
    world.submit("a", retries={"errors": 0})
    answer = world.run("pull", "a")
    assert (answer.code, "a has not ended, and has no outputs yet" in answer.err) == (3, True)
    assert "everspot job a --wait" in answer.err
    world.assign("a", "i-base", 10)
    world.start("a", 20)
    world.finish("a", 30, 10, 0.9)
    answer = world.run("pull", "a")
    assert (answer.code, "a has ended and left nothing in its folder outputs/" in answer.err) == (3, True)
    assert "it has no outputs" in world.run("pull", "a", "model.pt").err


def test_outputs_that_time_does_not_suffice_for_are_named(world, tmp_path):
    folder = tmp_path / "left"
    folder.mkdir()
    for name, text in (("x.txt", "1"), ("y.txt", "22")):
        (folder / name).write_text(text)
    has_time = iter([True, False])
    assert world.store.outputs("job").keep(1, folder, lambda: next(has_time)) == (1, {"y.txt": "no time was left"})


def test_an_odd_name_is_pulled_and_shown_harmlessly(world, tmp_path):
    world.submit("a")
    folder = tmp_path / "left"
    folder.mkdir()
    for name in (b"a.csv\r", b"caf\xe9.csv", b"new\nline", b"good.csv"):
        (folder / os.fsdecode(name)).write_bytes(name)
    assert world.store.outputs("a").keep(1, folder, lambda: True) == (4, {})
    answer = world.run("--json", "pull", "a", "--to", str(tmp_path / "out"))
    assert answer.code == 0
    assert [file["path"] for file in answer.json["files"]] == ["a.csv%0D", "caf%E9.csv", "good.csv", "new%0Aline"]
    names = sorted(os.fsencode(path.name) for path in (tmp_path / "out/a").iterdir())
    assert names == [b"a.csv\r", b"caf\xe9.csv", b"good.csv", b"new\nline"]
    assert world.run("pull", "a", "caf%E9.csv", "--to", str(tmp_path / "one")).code == 0


def test_requirements_need_pip_s_python_only_where_there_are_any(world, job):
    before = set(sys.modules)
    assert world.run("submit", job("")).code == 0
    assert "everspot_cli.wheels" not in set(sys.modules) - before


@pytest.mark.parametrize(
    ("types", "archs"), [(["c7g.xlarge"], ["arm64"]), (["c6i.large", "c7g.xlarge"], ["arm64", "x86_64"])]
)
def test_packages_are_fetched_for_the_architectures_of_the_fleets(world, tmp_path, job, monkeypatch, types, archs):
    world.offer(*types)
    world.beat("i-base")  # of x86_64: started by hand, or before the fleets were changed
    monkeypatch.setattr(wheels, "fetch_wheels", lambda *_, archs, **__: fetched_archs.extend(archs) or [])
    (tmp_path / "req.txt").write_text("bouquet==1.0\n")
    fetched_archs: list[str] = []
    assert world.run("submit", job("requirements: req.txt\n")).code == 0
    assert fetched_archs == archs
