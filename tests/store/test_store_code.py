"""Packing and unpacking the user's code."""

import errno
import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest
from everspot_store import Store, UnsafeArchive
from everspot_store.code import pack, unpack


def fill(folder: Path) -> Path:
    (folder / "b").mkdir(parents=True)
    (folder / "b" / "y.py").write_text("y")
    (folder / "a.py").write_text("a")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    return folder


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = fill(tmp_path / "1"), fill(tmp_path / "2")
    (second / "__pycache__").mkdir()
    (second / "__pycache__" / "x.pyc").write_bytes(b"x")
    for path in second.rglob("*"):
        os.utime(path, (1, 1))
    (second / "a.py").chmod(0o600)
    assert pack(first, tmp_path / "1.tgz") == pack(second, tmp_path / "2.tgz")
    assert (tmp_path / "1.tgz").read_bytes() == (tmp_path / "2.tgz").read_bytes()
    (second / "a.py").write_text("b")
    assert pack(first, tmp_path / "1.tgz") != pack(second, tmp_path / "2.tgz")


def test_what_is_packed_comes_back_with_its_executable_bit(tmp_path: Path) -> None:
    pack(fill(tmp_path / "in"), tmp_path / "x.tgz")
    unpack(tmp_path / "x.tgz", tmp_path / "out")
    assert sorted(path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.*")) == [
        "a.py",
        "b/y.py",
        "run.sh",
    ]
    assert os.access(tmp_path / "out" / "run.sh", os.X_OK)


def test_links_inside_are_packed_as_files_and_links_outwards_are_refused(tmp_path: Path) -> None:
    folder = fill(tmp_path / "in")
    (folder / "link.py").symlink_to("a.py")
    pack(folder, tmp_path / "x.tgz")
    unpack(tmp_path / "x.tgz", tmp_path / "out")
    assert (tmp_path / "out" / "link.py").read_text() == "a"
    assert not (tmp_path / "out" / "link.py").is_symlink()
    (folder / "secret").symlink_to("/etc/passwd")
    with pytest.raises(UnsafeArchive, match="secret"):
        pack(folder, tmp_path / "y.tgz")
    (folder / "secret").unlink()
    (folder / "loop").symlink_to(".")
    with pytest.raises(UnsafeArchive, match="loop"):
        pack(folder, tmp_path / "y.tgz")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("/etc/evil", tarfile.REGTYPE),
        ("../evil", tarfile.REGTYPE),
        ("a/../../evil", tarfile.REGTYPE),
        ("link", tarfile.SYMTYPE),
        ("hard", tarfile.LNKTYPE),
        ("pipe", tarfile.FIFOTYPE),
    ],
)
def test_nothing_is_unpacked_of_an_archive_that_leads_outside(tmp_path: Path, name: str, kind: bytes) -> None:
    archive = tmp_path / "evil.tgz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("good"), io.BytesIO())
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, "/etc/passwd"
        tar.addfile(info)
    with pytest.raises(UnsafeArchive, match=name):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("data", [b"", b"no archive", gzip.compress(b"no tar", mtime=0)], ids=["empty", "text", "gzip"])
def test_what_is_no_archive_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.tgz").write_bytes(data)
    with pytest.raises(UnsafeArchive):
        unpack(tmp_path / "x.tgz", tmp_path / "out")


def test_a_folder_that_cannot_be_listed_is_an_error_that_names_it(
    tmp_path: Path, folder_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may list every folder, so the refusal is made here."""
    folder, list_folder = fill(tmp_path / "code"), os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("/b"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return list_folder(path)

    monkeypatch.setattr(os, "scandir", refuse)
    for attempt in (lambda: pack(folder, tmp_path / "x.tar.gz"), lambda: folder_store.datasets.put("code", folder)):
        with pytest.raises(UnsafeArchive, match=r"^folder b of .*/code cannot be listed: Permission denied"):
            attempt()
    assert folder_store.datasets.versions() == []
    pack(folder, tmp_path / "y.tar.gz", lambda path: path == "b/")
