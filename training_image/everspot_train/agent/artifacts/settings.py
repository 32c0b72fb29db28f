"""Distinguishes settings files that hold state from configuration, by the program's writes.

`config.yaml` is written once and describes the run. `trainer.toml` with a step counter is written again in each round
and belongs to the weights beside it. The names do not show the difference, so only a rewritten file counts as state.
"""

from collections import Counter
from collections.abc import Collection, Iterable

from everspot_store.file_tree import EntryKind

from everspot_train.agent.artifacts.layouts import is_log, is_settings, path_template
from everspot_train.agent.artifacts.look import Look

_WRITES_OF_A_ROUND = 2
"""A settings file that is not written between this many writes of one state file belongs to no round."""


class SettingsFiles:
    """The settings files of one folder during one attempt.

    Args:
        members: templates that belong to every round, from earlier attempts.

    Attributes:
        state: templates of the settings files that hold state.
    """

    def __init__(self, members: Iterable[bytes] = ()) -> None:
        self._learned = frozenset(filter(is_settings, members))
        self.state = set(self._learned)
        self._state_writes = Counter[bytes]()
        self._writes_before: dict[bytes, Counter[bytes]] = {}  # the writes before the last write of a settings file

    def observe(self, paths: Iterable[bytes], before: Look, look: Look, logs: Collection[bytes]) -> None:
        """Record the written files, in the order of their writes."""
        for path in paths:
            template, item = path_template(path), look.items[path]
            if item.kind is not EntryKind.FILE or path in logs or path in look.appending:
                continue
            if is_settings(path):
                again = path in before.items and path not in before.writing
                if again or (template in self._writes_before and self._rounds_since(template) > 0):
                    self.state.add(template)
                self._writes_before[template] = Counter(self._state_writes)
            elif not is_log(path):
                if not self._state_writes:  # a file that is rewritten before any state exists is configuration
                    self.state = set(self._learned)
                self._state_writes[template] += 1

    def holds_state(self, path: bytes) -> bool:
        """Return whether a settings file was rewritten."""
        return is_settings(path) and path_template(path) in self.state

    def pending(self, paths: Iterable[bytes]) -> frozenset[bytes]:
        """Return the settings files that may still be rewritten in the present round, so that it is unknown whether
        they hold state."""
        templates = {path: path_template(path) for path in paths if is_settings(path)}
        return frozenset(
            path
            for path, template in templates.items()
            if template not in self.state and 0 < self._rounds_since(template) < _WRITES_OF_A_ROUND
        )

    def _rounds_since(self, template: bytes) -> int:
        before = self._writes_before.get(template, Counter())
        return max((count - before[other] for other, count in self._state_writes.items()), default=0)
