"""The `info` of a checkpoint of a program's folder: its kind, the upload times of its parts, and the rhythm in which
the program writes."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from everspot_core.jobs.checkpoint import Checkpoint, Part
from everspot_core.jobs.reported_values import parse_count
from everspot_store.file_tree import escape_path, unescape_path
from pydantic import JsonValue

from everspot_train.agent.artifacts.rhythm import Rhythm

_KIND, _FOLDER = "kind", "folder"
_SENT = "sent"
"""The field with the upload times of the parts, by the prefix of each publication's keys."""
_RHYTHM = "rhythm"
_STEP = "step"
_FORMAT, _WITH_TREE = "format", 2
"""The field that marks checkpoints with a tree. Checkpoints of earlier releases have no tree: the names of their parts
are paths."""


def make_folder_info(
    sent: Mapping[str, datetime], rhythm: Rhythm, parts: Iterable[bytes], step: int | None
) -> dict[str, JsonValue]:
    """Return the `info` of a checkpoint of a folder.

    Args:
        sent: the upload time of each publication's parts, by `publication_prefix`.
        rhythm: the rhythm learned so far.
        parts: the templates of numbered files of one checkpoint.
        step: the optimizer steps of the program's newest checkpoint in it; None: not known.
    """
    return {
        _KIND: _FOLDER,
        _FORMAT: _WITH_TREE,
        _SENT: {place: at.isoformat() for place, at in sent.items()},
        _RHYTHM: _encode_rhythm(rhythm, parts),
        _STEP: step,
    }


def is_folder_checkpoint(checkpoint: Checkpoint) -> bool:
    """Return whether the checkpoint is a folder's, and not the trainer library's."""
    return checkpoint.info.get(_KIND) == _FOLDER


def has_tree(checkpoint: Checkpoint) -> bool:
    """Return whether the checkpoint has a part with the names, modes, times and links of its files."""
    return checkpoint.info.get(_FORMAT) == _WITH_TREE


def read_step(checkpoint: Checkpoint) -> int | None:
    """Return the optimizer steps of the program's newest checkpoint; None if unknown."""
    return parse_count(checkpoint.info.get(_STEP))


def publication_prefix(part: Part) -> str:
    """Return the prefix of the keys of one publication."""
    return "/".join(part.key.split("/")[:5])


def read_upload_times(checkpoint: Checkpoint, job_id: str) -> dict[str, datetime]:
    """Return the recorded upload times of the parts under the job's own prefix."""
    stored, times = checkpoint.info.get(_SENT), {}
    for place, at in stored.items() if isinstance(stored, dict) else ():
        try:
            moment = datetime.fromisoformat(str(at))
        except ValueError:
            continue
        if place.startswith(f"jobs/{job_id}/") and moment.tzinfo is not None:
            times[place] = moment
    return times


def read_rhythm(checkpoint: Checkpoint) -> Rhythm:
    """Return the rhythm that an earlier attempt has learned."""
    stored = checkpoint.info.get(_RHYTHM)
    if not isinstance(stored, dict) or not isinstance(stored.get("leader"), str):
        return Rhythm()
    members = stored.get("members")
    names = [name for name in members if isinstance(name, str)] if isinstance(members, list) else []
    return Rhythm(unescape_path(str(stored["leader"])), frozenset(map(unescape_path, names)), rounds=1)


def read_numbered_parts(checkpoint: Checkpoint) -> list[bytes]:
    """Return the templates of numbered files of one checkpoint that an earlier attempt has learned."""
    stored = checkpoint.info.get(_RHYTHM)
    parts = stored.get("parts") if isinstance(stored, dict) else None
    return [unescape_path(name) for name in parts if isinstance(name, str)] if isinstance(parts, list) else []


def _encode_rhythm(rhythm: Rhythm, parts: Iterable[bytes]) -> JsonValue:
    if rhythm.leader is None or rhythm.rounds == 0:
        return None
    return {
        "leader": escape_path(rhythm.leader),
        "members": [escape_path(name) for name in sorted(rhythm.members)],
        "parts": [escape_path(template) for template in sorted(parts)],
    }
