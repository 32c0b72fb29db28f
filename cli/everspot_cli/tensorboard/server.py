"""Starts TensorBoard, also beside a setuptools that no longer has the module `pkg_resources`.

TensorBoard 2.20 imports it for its plugins and for a comparison of versions, and setuptools has removed it in version
82. The standard library and `packaging`, on which TensorBoard depends, have the same.
"""

import importlib.metadata
import importlib.util
import runpy
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any


class _EntryPoint:
    def __init__(self, entry_point: importlib.metadata.EntryPoint) -> None:
        self._entry_point = entry_point

    def resolve(self) -> Any:
        """Return what the entry point names."""
        return self._entry_point.load()


class PackageResources(ModuleType):
    """A stand-in for `pkg_resources`, with the two functions that TensorBoard calls."""

    def iter_entry_points(self, group: str) -> Iterator[_EntryPoint]:
        """Yield the entry points of a group, from all installed distributions."""
        return map(_EntryPoint, importlib.metadata.entry_points(group=group))

    def parse_version(self, version: str) -> Any:
        """Return a version that can be compared with others."""
        return importlib.import_module("packaging.version").parse(version)


if __name__ == "__main__":
    if importlib.util.find_spec("pkg_resources") is None:
        sys.modules["pkg_resources"] = PackageResources("pkg_resources")
    runpy.run_module("tensorboard.main", run_name="__main__", alter_sys=True)
