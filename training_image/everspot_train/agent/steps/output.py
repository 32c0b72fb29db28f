"""Reads new step lines from the output of a program."""

from pathlib import Path

from everspot_core.jobs.step_lines import LONGEST_LINE, MARK, StepReport, parse_step_line

from everspot_train.rundir import open_regular

MOST_PER_LOOK = 256 * 1024
"""The most bytes that one call of `read` reads: 1 MiB a second. If a program prints faster, the newest bytes are
read."""

_MARK = f"{MARK} ".encode()


class OutputSteps:
    """The step lines of one output file. Not thread-safe.

    Attributes:
        overlong: whether a step line was ignored because it is too long.
    """

    def __init__(self, output: Path) -> None:
        self._output = output
        self._offset = 0
        self._begun = b""
        self._passing_over = False
        self.overlong = False

    def read(self) -> list[StepReport]:
        """Return the reports of new lines, in order. An unreadable file has none."""
        try:
            with open_regular(self._output) as file:
                size = file.seek(0, 2)
                if size < self._offset:  # the program has truncated it
                    self._offset, self._begun, self._passing_over = 0, b"", False
                if size - self._offset > MOST_PER_LOOK:
                    self._offset, self._begun, self._passing_over = size - MOST_PER_LOOK, b"", True
                file.seek(self._offset)
                data = file.read(size - self._offset)
        except OSError:
            return []
        self._offset += len(data)
        # A progress bar ends its lines with carriage returns.
        lines = (self._begun + data).replace(b"\r", b"\n").split(b"\n")
        self._begun = lines.pop()
        if self._passing_over and lines:
            lines = lines[1:]
            self._passing_over = False
        too_long = (line for line in [*lines, self._begun] if len(line) > LONGEST_LINE)
        self.overlong = self.overlong or any(_MARK in line[:LONGEST_LINE] for line in too_long)
        if len(self._begun) > LONGEST_LINE:
            self._begun, self._passing_over = b"", True
        candidates = (line.decode(errors="replace") for line in lines if len(line) <= LONGEST_LINE and _MARK in line)
        return [report for line in candidates if (report := parse_step_line(line)) is not None]
