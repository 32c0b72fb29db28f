"""Warns before a job is submitted that keeps nothing: after each interruption it would restart from zero."""

import re
from pathlib import Path

from everspot_core.counting import counted
from everspot_core.job import JobSubmission

SUFFIXES = frozenset({".py", ".pyi", ".sh", ".bash", ".ipynb", ".yaml", ".yml", ".toml", ".json", ".cfg", ".ini"})
"""Files that may say where a program writes its checkpoints: code, scripts and settings."""
MOST_BYTES = 1 << 20
"""The most of one file that is read."""
MOST_FILES = 5000
_EVIDENCE = re.compile(rb"\bcheckpoints\b|EVERSPOT_CHECKPOINT_DIR|\beverspot_train\b")


def unsaved_warnings(submission: JobSubmission) -> list[str]:
    """Return a warning if nothing in the job mentions what is kept: the folder `checkpoints`, or the trainer library.

    The text of the code decides, not a run of it. So the warning may be wrong where the name is put together at run
    time or comes from an installed package; a job without a folder of code is not judged.
    """
    spec = submission.spec
    if spec.entrypoint is None or spec.code is None:
        return []
    spec_text = " ".join([*spec.entrypoint, *spec.env, *spec.env.values(), *spec.setup]).encode()
    if _EVIDENCE.search(spec_text) or _mentions(Path(spec.code)):
        return []
    allowed = spec.retries.from_zero
    consequence = f"the program restarts from zero, {counted(allowed, 'time')} at most" if allowed else "the job fails"
    return [
        "nothing in the code mentions the folder checkpoints or the trainer library: after an interruption "
        f"{consequence} (retries.from_zero). Write its state into checkpoints/ "
        "(EVERSPOT_CHECKPOINT_DIR names it) and load it at the start, or use everspot_train: docs/guide/training.md"
    ]


def _mentions(folder: Path) -> bool:
    files = (path for path in sorted(folder.rglob("*")) if path.suffix in SUFFIXES)
    for number, path in enumerate(files):
        if number >= MOST_FILES:
            return True  # too much to be sure of anything
        try:
            if not path.is_file():
                continue
            with path.open("rb") as file:
                if _EVIDENCE.search(file.read(MOST_BYTES)):
                    return True
        except OSError:
            continue
    return False
