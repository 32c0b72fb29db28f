"""The orders of a rehearsal to the trainer. torch is not imported, because the rehearsal's own process needs none."""

import json
from dataclasses import dataclass, field
from pathlib import Path

REHEARSAL_VARIABLE = "EVERSPOT_REHEARSAL"
"""The variable with the path of the file that the trainer writes its steps to."""
AT_END = "end"


@dataclass(frozen=True)
class Orders:
    """What a rehearsal asks of one attempt.

    Attributes:
        steps: how many steps are made over all attempts; None leaves it to the trainer.
        pauses: by step (or AT_END, when the loop is over) what is waited for: `checkpoint`, `stop` or `death`.
    """

    steps: int | None = None
    pauses: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def path(record: Path) -> Path:
        """Return the file of the orders beside the record."""
        return record.with_name(f"{record.name}.orders")

    @classmethod
    def read(cls, record: Path) -> "Orders":
        """Read the orders beside the record; without a file nothing is asked."""
        try:
            return cls(**json.loads(cls.path(record).read_text()))
        except FileNotFoundError:
            return cls()

    def write(self, record: Path) -> None:
        """Write the orders beside the record."""
        self.path(record).write_text(json.dumps({"steps": self.steps, "pauses": self.pauses}))
