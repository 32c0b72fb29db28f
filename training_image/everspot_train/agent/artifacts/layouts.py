"""Divides a folder into checkpoints with a framework's layout, loose files and logs, by pure functions.

The last-written file of each layout comes from the framework's source:

- transformers 4.20 to 5.24, `Trainer._save_checkpoint`: `trainer_state.json` is written after the model, the optimizer
  and rank 0's random state. `training_args.bin` belongs to every checkpoint of a Trainer.
- torch.distributed.checkpoint, `_FileSystemWriter.finish`: `.metadata` is renamed into place after all `.distcp` files.
- accelerate 1.15, `save_accelerator_state`: `random_states_N.pkl`, then custom objects.
- lightning 2.6, `_atomic_save`: a `.ckpt` file is written elsewhere and moved into place. It holds the whole state.
- transformers and accelerate, `save_pretrained`: shards are named `-00001-of-00003`, and their index is written last.
"""

import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from everspot_store.file_tree import EntryKind

from everspot_train.agent.artifacts.look import Item, Look
from everspot_train.rundir import COMPLETE_MARKER

_TRAINER = re.compile(rb"checkpoint-\d+")
_DISTRIBUTED = re.compile(rb"\.metadata|__\d+\.metadata|.+\.distcp")
_RANDOM_STATES = re.compile(rb"random_states_\d+\.pkl")
_RANK_METADATA = re.compile(rb"__(\d+)\.metadata")
_RANK_DATA = re.compile(rb"__(\d+)_.*\.distcp")
_TRAINER_FILES = re.compile(
    rb"((pytorch_|adapter_)?model|optimizer|scheduler|scaler|rng_state|training_args|trainer_state|global_step).*"
)
_PARTS_OF_STATE = re.compile(
    rb"(.*[-_.])?(optim(izer)?s?|opt|sched(uler)?s?|scaler|ema|brain|counter|dataloader|rng)([-_.=].*)?\.ckpt",
    re.IGNORECASE,
)
"""Names of `.ckpt` files beside which no other one is a whole checkpoint, as Lightning's are."""
_SHARD = re.compile(rb"(.+)-(\d+)-of-(\d+)(\.\w+)")
_LOG_NAMES = re.compile(
    rb"(.*\.(log|jsonl|csv|tsv|out|err|md|html|png|jpe?g|svg|pdf|lock|pid)|.*\.log\.\d+"
    rb"|.*tfevents.*|\.gitignore)",
    re.IGNORECASE,
)
_SETTINGS_NAMES = re.compile(rb".*\.(ya?ml|toml|ini|cfg)", re.IGNORECASE)
STATE_ENDINGS = (
    b".pt", b".pth", b".bin", b".safetensors", b".ckpt", b".npz", b".npy", b".pkl", b".pickle", b".h5", b".hdf5",
    b".msgpack", b".joblib", b".mmap", b".memmap", b".dat", b".tar", b".zip", b".model", b".onnx", b".gguf",
)  # fmt: skip
"""Endings of files that always hold state, however often they are written and in any folder."""
_LOG_FOLDERS = {b"runs", b"wandb", b"mlruns", b"logs", b"tensorboard"}
_VERSION = re.compile(
    rb"(?:step|epoch|iter|iteration|ckpt|checkpoint|snapshot|save|state)s?[-_=.]?(\d+)", re.IGNORECASE
)
_HEX = re.compile(rb"(?<![0-9A-Za-z])(?=[0-9a-f]*\d)[0-9a-f]{6,}(?![0-9A-Za-z])")
_NUMBER = re.compile(rb"([A-Za-z]*)([-_=.]?)(\d+)")
_FOLDER = re.compile(rb"([A-Za-z][A-Za-z_-]*?)([-_=.]?)(\d+)")
_PART = re.compile(rb"\d+(\.\w+)?")
_LEAST_VERSION = 100
"""A smaller number may be the number of a rank or a layer that happens to equal the version's."""
_MEMBERS = re.compile(
    rb"(rank|shard|part|proc|process|worker|split|gpu|device|of|mp|tp|pp|dp|layer|fold|seed|v|fp|bf|int|model)",
    re.IGNORECASE,
)


_OLDER = "its marker was not written yet, or before its last file"
MARKER = os.fsencode(COMPLETE_MARKER)


class Layout(StrEnum):
    """The way in which a checkpoint shows that it is complete."""

    MARKED = "a marker"

    TRAINER = "transformers.Trainer"
    DISTRIBUTED = "torch.distributed.checkpoint"
    ACCELERATE = "accelerate"
    LIGHTNING = "lightning"
    RENAMED = "a folder that was renamed into place"


@dataclass(frozen=True)
class CheckpointUnit:
    """A checkpoint whose completeness does not depend on files outside of it.

    Attributes:
        name: path of its folder or file.
        layout: the way in which it shows that it is complete.
        paths: of its files and links.
        missing: the first missing file, as a phrase; empty if no file is missing.
    """

    name: bytes
    layout: Layout
    paths: frozenset[bytes]
    missing: str = ""


@dataclass(frozen=True)
class Division:
    """A folder divided.

    Attributes:
        units: the checkpoints whose files a layout identifies.
        loose: all other files that hold state.
        others: logs and similar files, which are kept as they are.
        links: symbolic links outside of units.
        missing: the file that the loose files lack by their names, as a phrase.
        marked: whether a marker says that the loose files are complete; None if there is no marker.
    """

    units: tuple[CheckpointUnit, ...]
    loose: frozenset[bytes]
    others: frozenset[bytes]
    links: frozenset[bytes]
    missing: str = ""
    marked: bool | None = None


def divide(
    look: Look,
    logs: Iterable[bytes] = (),
    families: Mapping[bytes, Layout] | None = None,
    settings: Collection[bytes] = (),
) -> Division:
    """Divide a folder.

    Args:
        look: the folder.
        logs: files that were recognized as logs by their writes.
        families: the layout of earlier checkpoints, by the template of their folder (`path_template`).
        settings: settings files that were recognized as state by their writes.
    """
    contents = _contents(look.items)
    units = list[CheckpointUnit]()
    for folder in sorted(contents):
        if not any(folder.startswith(unit.name + b"/") for unit in units):
            unit = _framework_unit(folder, contents[folder], look.items, families or {})
            units += [unit] if unit is not None else []
    for folder in sorted(contents):
        related = any((folder + b"/").startswith(u.name + b"/") or u.name.startswith(folder + b"/") for u in units)
        if not related and _was_renamed(folder, contents[folder], look.items):
            # A renamed folder is final: missing shards will not be written any longer.
            units.append(CheckpointUnit(folder, Layout.RENAMED, contents[folder]))
    inside = frozenset().union(*(unit.paths for unit in units))
    outside = {path: item for path, item in look.items.items() if path not in inside}
    ckpt = [path for path, item in outside.items() if path.endswith(b".ckpt") and item.kind is EntryKind.FILE]
    divided = {path.rpartition(b"/")[0] for path in ckpt if _PARTS_OF_STATE.fullmatch(path.rpartition(b"/")[2])}
    ckpt = [path for path in ckpt if path.rpartition(b"/")[0] not in divided]
    units += [CheckpointUnit(path, Layout.LIGHTNING, frozenset({path})) for path in ckpt]
    files = {path for path, item in outside.items() if item.kind is EntryKind.FILE} - set(ckpt)
    logs = {path for path in files if is_log(path) and path not in settings} | set(logs) | look.appending
    others = frozenset(files & logs)
    loose = frozenset(files) - others
    links = frozenset(path for path, item in outside.items() if item.kind is EntryKind.LINK)
    marker = look.items.get(MARKER)
    if marker is None:
        return Division(tuple(units), loose, others, links, missing_shards(loose))
    marked = all(look.items[path].ctime_ns <= marker.ctime_ns for path in loose)
    return Division(tuple(units), loose, others, links, "" if marked else _OLDER, marked)


def is_log(path: bytes) -> bool:
    """Return whether a file's name is that of a log, a picture or settings, which hold no state."""
    *folders, name = path.split(b"/")
    if _LOG_NAMES.fullmatch(name) is not None or _SETTINGS_NAMES.fullmatch(name) is not None:
        return True
    return bool(_LOG_FOLDERS & set(folders)) and not name.lower().endswith(STATE_ENDINGS)


def is_settings(path: bytes) -> bool:
    """Return whether a file's name is that of settings, which hold state if the program rewrites them."""
    *folders, name = path.split(b"/")
    return _SETTINGS_NAMES.fullmatch(name) is not None and not _LOG_FOLDERS & set(folders)


def may_stand_alone(path: bytes) -> bool:
    """Return whether a log may be a program's only state, such as a table of results to which it appends."""
    return not is_log(path) or path.endswith((b".jsonl", b".csv", b".tsv"))


def path_template(path: bytes) -> bytes:
    """Return the path with `#` for the number of its version: `step-20/rank-0.pt` is `step-#/rank-0.pt`, and
    `model_20.pt` is `model_#.pt`."""
    folder, slash, name = path.rpartition(b"/")
    parts = folder.split(b"/")
    numbered = [b"#" if part.isdigit() else _VERSION.sub(_with_sign, part) for part in parts]
    if numbered != parts:  # numbers in the name belong to members, unless they repeat the version
        versions = {int(number) for part in parts for number in re.findall(rb"\d+", part)}
        same = _NUMBER.sub(lambda match: _version_again(match, versions), name)
        return b"/".join(numbered) + slash + same
    plain = _NUMBER.sub(_number_sign, _HEX.sub(b"#", name))
    if name and (plain == name or _PART.fullmatch(name)):
        numbered = [_folder_sign(match) if (match := _FOLDER.fullmatch(part)) else part for part in parts]
        if numbered != parts:
            return b"/".join(numbered) + slash + name
    return folder + slash + plain


def member_template(path: bytes) -> bytes:
    """Return the template of a file whose number distinguishes it from the other files of the same checkpoint."""
    folder, slash, name = path.rpartition(b"/")
    return path_template(folder + b"/_").rpartition(b"/")[0] + slash + name if folder else name


def numbered_template(path: bytes) -> bytes:
    """Return the path with `#` for the numbers of its name and, unlike `path_template`, of its folders."""
    folder, slash, _ = path.rpartition(b"/")
    name = path_template(path).rpartition(b"/")[2]
    return path_template(folder + b"/_").rpartition(b"/")[0] + slash + name if folder else name


def required_members(unit: CheckpointUnit) -> frozenset[bytes]:
    """Return the files of a checkpoint that later ones of the same folder's template must have too: their number
    depends on the ranks. Those that a program adds to a layout may be missing in any other checkpoint."""
    inside = {path: path[len(unit.name) + 1 :] for path in unit.paths}
    match unit.layout:
        case Layout.ACCELERATE:
            return unit.paths
        case Layout.TRAINER:
            return frozenset(path for path, name in inside.items() if _TRAINER_FILES.fullmatch(name))
        case Layout.DISTRIBUTED:
            return frozenset(path for path, name in inside.items() if _RANK_METADATA.fullmatch(name))
        case _:
            return frozenset()


def missing_shards(paths: Iterable[bytes]) -> str:
    """Return which shard of a sharded file is missing; empty if none is."""
    names = set(paths)
    for path in sorted(names):
        shard = _SHARD.fullmatch(path)
        if shard is None:
            continue
        stem, number, count, ending = shard.groups()
        for n in range(1, int(count) + 1):
            part = b"%s-%s-of-%s%s" % (stem, str(n).zfill(len(number)).encode(), count, ending)
            if part not in names:
                return f"{part.rpartition(b'/')[2].decode('utf-8', 'replace')} is not written yet"
        if stem.endswith(b"model") and stem + ending + b".index.json" not in names:
            return f"the index of {stem.rpartition(b'/')[2].decode('utf-8', 'replace')} is not written yet"
    return ""


def _contents(items: Mapping[bytes, Item]) -> dict[bytes, frozenset[bytes]]:
    """Return the files and links at any depth below each folder."""
    below: dict[bytes, set[bytes]] = {}
    for path, item in items.items():
        if item.kind in (EntryKind.FILE, EntryKind.LINK):
            folder = path.rpartition(b"/")[0]
            while folder:
                below.setdefault(folder, set()).add(path)
                folder = folder.rpartition(b"/")[0]
    return {folder: frozenset(paths) for folder, paths in below.items()}


def _framework_unit(
    folder: bytes, paths: frozenset[bytes], items: Mapping[bytes, Item], families: Mapping[bytes, Layout]
) -> CheckpointUnit | None:
    names = {path[len(folder) + 1 :] for path in paths if b"/" not in path[len(folder) + 1 :]}
    family = families.get(path_template(folder + b"/"))
    marker = items.get(folder + b"/" + MARKER)
    if marker is not None or family is Layout.MARKED:
        whole = marker is not None and all(items[path].ctime_ns <= marker.ctime_ns for path in paths)
        return CheckpointUnit(folder, Layout.MARKED, paths, "" if whole else _OLDER)
    parent = folder.rpartition(b"/")[0] + b"/"
    if any(map(_DISTRIBUTED.fullmatch, names)) or family is Layout.DISTRIBUTED:
        if path_template(parent) != parent:  # one of several folders, as step-20/model and step-20/optim
            return None
        return CheckpointUnit(folder, Layout.DISTRIBUTED, paths, _missing_metadata(folder, names, items))
    trainer = _TRAINER.fullmatch(folder.rpartition(b"/")[2]) and names & {b"training_args.bin", b"trainer_state.json"}
    if trainer or family is Layout.TRAINER:
        missing = "" if b"trainer_state.json" in names else "trainer_state.json is not written yet"
        return CheckpointUnit(folder, Layout.TRAINER, paths, missing or missing_shards(paths))
    random_states = any(_RANDOM_STATES.fullmatch(name) for name in names)
    if random_states or family is Layout.ACCELERATE:  # other loops have files such as optimizer.bin, too
        missing = "" if random_states else "random_states_0.pkl is not written yet"
        return CheckpointUnit(folder, Layout.ACCELERATE, paths, missing or missing_shards(paths))
    return None


def _was_renamed(folder: bytes, paths: frozenset[bytes], items: Mapping[bytes, Item]) -> bool:
    """Return whether nothing in the folder has changed since it was renamed. A rename changes the folder's ctime, but
    not its mtime."""
    own = items.get(folder)
    if own is None or own.ctime_ns <= own.mtime_ns:
        return False
    return all(items[path].ctime_ns <= own.ctime_ns for path in paths)


def _missing_metadata(folder: bytes, names: set[bytes], items: Mapping[bytes, Item]) -> str:
    closing = [items[folder + b"/" + name].ctime_ns for name in names if name.endswith(b".metadata")]
    data = [items[folder + b"/" + name].ctime_ns for name in names if name.endswith(b".distcp")]
    if not closing or (data and max(closing) < max(data)):  # an older checkpoint is being overwritten
        return ".metadata is not written yet"
    ends = {match[1]: items[folder + b"/" + name] for name in names if (match := _RANK_METADATA.fullmatch(name))}
    for name in sorted(names) if ends else ():
        match = _RANK_DATA.fullmatch(name)
        end = ends.get(match[1]) if match is not None else None
        if match is not None and (end is None or end.ctime_ns < items[folder + b"/" + name].ctime_ns):
            return f"__{match[1].decode()}.metadata is not written yet"
    return ""


def _with_sign(match: "re.Match[bytes]") -> bytes:
    return match[0][: match.start(1) - match.start()] + b"#"


def _version_again(match: "re.Match[bytes]", versions: set[int]) -> bytes:
    number = int(match[3])
    return _number_sign(match) if number in versions and number >= _LEAST_VERSION else match[0]


def _folder_sign(match: "re.Match[bytes]") -> bytes:
    prefix, sign, _ = match.groups()
    return prefix + sign + b"#" if prefix in (b"v", b"V") else _number_sign(match)


def _number_sign(match: "re.Match[bytes]") -> bytes:
    prefix, sign, _ = match.groups()
    if _MEMBERS.fullmatch(prefix) and not (prefix.lower() == b"model" and sign):
        return match[0]
    return prefix + sign + b"#"
