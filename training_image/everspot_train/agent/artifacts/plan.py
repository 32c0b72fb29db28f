"""Plans a publication: which files are published with their present content, and which with the last published one.
Pure functions."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from everspot_store.file_tree import EntryKind, TreeEntry, escape_path, unescape_path

from everspot_train.agent.artifacts.assess import Assessment
from everspot_train.agent.artifacts.layouts import may_stand_alone
from everspot_train.agent.artifacts.look import Item, Look, Stamp


@dataclass(frozen=True)
class LastPublication:
    """The last publication.

    Attributes:
        entries: the tree, by path.
        stamps: the stamps of files on this machine that have the published content.
    """

    entries: Mapping[bytes, TreeEntry] = field(default_factory=dict)
    stamps: Mapping[bytes, Stamp] = field(default_factory=dict)


@dataclass(frozen=True)
class PublicationPlan:
    """A publication.

    Attributes:
        units: the name of each path's checkpoint; empty for paths outside of checkpoints.
        present: paths that are published with their present content.
        carried: entries that are published unchanged from the last publication.
        folders: the parents of these paths and the empty folders in their checkpoints, each with the name of its
            checkpoint.
    """

    units: Mapping[bytes, bytes]
    present: frozenset[bytes]
    carried: Mapping[bytes, TreeEntry]
    folders: Mapping[bytes, bytes]


def is_due(look: Look, assessment: Assessment, last: LastPublication, dirty: Iterable[bytes] = ()) -> bool:
    """Return whether a complete checkpoint was not published yet. Tables of results count only if there is nothing
    else; other logs and removed files never count."""
    state = {path for unit in assessment.units for path in unit.paths} | (assessment.loose or set())
    if not state and not assessment.waiting and assessment.loose is not None:
        state = {path for path in assessment.others if may_stand_alone(path)}
    changed = {path for path in state if last.stamps.get(path) != look.items[path].stamp}
    files = {path for path in changed if look.items[path].kind is EntryKind.FILE}
    return bool(files or state & set(dirty))


def plan(look: Look, assessment: Assessment, last: LastPublication, refused: Iterable[bytes] = ()) -> PublicationPlan:
    """Return the plan of a publication.

    Args:
        look: the folder.
        assessment: of the folder.
        last: the last publication.
        refused: logs that could not be copied.
    """
    units = {path: unit.name for unit in assessment.units for path in unit.paths}
    units |= dict.fromkeys((assessment.loose or frozenset()) | (assessment.others - set(refused)), b"")
    carried = {
        path: entry
        for path, entry in last.entries.items()
        if path not in units and _stays(path, entry, look, assessment)
    }
    published = {*units, *carried}
    folders = {parent for path in published for parent in _parents(path)}
    for path in sorted(assessment.links):
        target = link_target(path, look.items[path])
        if target is None or target in published or target in folders:
            units[path] = b""
            carried.pop(path, None)
        elif path in last.entries:  # it points to a checkpoint that is not complete yet
            carried[path] = last.entries[path]
    inside = dict(_folders_of_units(look, assessment))
    above = {parent: inside.get(parent, b"") for path in (*units, *carried, *inside) for parent in _parents(path)}
    return PublicationPlan(
        units=units,
        present=frozenset(units),
        carried=carried,
        folders={path: unit for path, unit in (inside | above).items() if path not in carried},
    )


def find_empty_folders(look: Look, assessment: Assessment) -> set[bytes]:
    """Return the empty folders outside of checkpoint folders. They are not kept, because a program that first makes the
    folder of its next checkpoint would mistake it for its newest checkpoint."""
    folders = {path for path, item in look.items.items() if item.kind is EntryKind.DIRECTORY}
    inhabited = {parent for path in look.items for parent in _parents(path)}
    waiting = {path for path in folders for name in assessment.waiting if path.startswith(name + b"/")}
    return folders - inhabited - waiting - {path for path, _ in _folders_of_units(look, assessment)}


def _folders_of_units(look: Look, assessment: Assessment) -> Iterable[tuple[bytes, bytes]]:
    """Yield the folders inside the complete checkpoints, each with the name of its checkpoint."""
    names = [unit.name for unit in assessment.units if unit.name not in unit.paths]
    for path, item in look.items.items():
        if item.kind is EntryKind.DIRECTORY:
            yield from ((path, name) for name in names if path.startswith(name + b"/"))


def link_target(path: bytes, item: Item) -> bytes | None:
    """Return the path in the folder that a link points to; None if it points elsewhere."""
    folder = b"" if item.inside else os.path.dirname(path)  # noqa: PTH120
    target = os.path.normpath(os.path.join(folder, item.target))  # noqa: PTH118
    return None if target.startswith((b"/", b"../")) else target


def without(assessment: Assessment, torn: Mapping[bytes, str]) -> Assessment:
    """Return the assessment without the checkpoints that hold these files, each with the reason."""
    dropped = [unit for unit in assessment.units if unit.paths & set(torn)]
    left_out = dict(assessment.left_out)
    for unit in dropped:
        left_out |= _skip_reasons(unit.paths, torn)
    loose = assessment.loose
    if loose is not None and loose & set(torn):
        earlier = loose - assessment.added if loose & set(torn) <= assessment.added else frozenset()
        left_out |= _skip_reasons(loose - earlier, torn)
        loose = earlier or None
    return Assessment(
        units=tuple(unit for unit in assessment.units if unit not in dropped),
        waiting=assessment.waiting | {unit.name for unit in dropped},
        loose=loose,
        others=assessment.others,
        settings=assessment.settings,
        links=assessment.links,
        left_out=left_out,
        added=assessment.added,
        doubtful=assessment.doubtful,
        reason=assessment.reason or next((left_out[path] for path in sorted(left_out)), ""),
    )


def _skip_reasons(paths: frozenset[bytes], torn: Mapping[bytes, str]) -> dict[bytes, str]:
    """Return why each file of a checkpoint is left out: for its own reason, or because of another file of the
    checkpoint."""
    first = min(path for path in paths if path in torn)
    together = f"it belongs to the same checkpoint as {escape_path(first)}: {torn[first]}"
    return {path: torn.get(path, together) for path in paths}


def _stays(path: bytes, entry: TreeEntry, look: Look, assessment: Assessment) -> bool:
    """Return whether a path keeps its published content, because its present content is not complete."""
    unit = unescape_path(entry.unit)
    if entry.kind is EntryKind.DIRECTORY:
        return unit in assessment.waiting
    if unit in assessment.waiting or any(path.startswith(name + b"/") for name in assessment.waiting):
        return True
    if path in assessment.others:
        return False
    return assessment.loose is None and (not unit or unit in look.items)


def _parents(path: bytes) -> Iterable[bytes]:
    parent = path.rpartition(b"/")[0]
    while parent:
        yield parent
        parent = parent.rpartition(b"/")[0]


def describe_entry(path: bytes, item: Item, unit: bytes) -> TreeEntry:
    """Describe a path as it is now."""
    return TreeEntry(
        path=escape_path(path),
        kind=item.kind or EntryKind.FILE,
        mode=item.mode,
        mtime_ns=item.mtime_ns,
        ctime_ns=item.ctime_ns,
        size=item.size if item.kind is EntryKind.FILE else 0,
        target=escape_path(item.target),
        inside=item.inside,
        unit=escape_path(unit),
    )
