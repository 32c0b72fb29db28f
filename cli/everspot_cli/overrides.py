"""What the command line says instead of a job's file."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from everspot_cli.errors import CliError, Exit
from everspot_cli.yamlfile import parse_yaml


@dataclass(frozen=True)
class Overrides:
    """`fields`: values by their path, such as `resources.gpus`."""

    fields: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, name: str | None, sets: Sequence[str], env: Sequence[str]) -> "Overrides":
        """From `--name`, `--set FIELD=VALUE` (the value as in the file) and `--env KEY=VALUE`.

        Raises:
            CliError: if one of them has no `=`, or its value is no YAML.
        """
        bad = [words for words in (*sets, *env) if not words.partition("=")[0] or "=" not in words]
        if bad:
            raise CliError(f"{', '.join(bad)}: write --set FIELD=VALUE and --env KEY=VALUE", Exit.USAGE)
        fields = {path: parse_yaml(value, f"--set {path}") for path, _, value in (text.partition("=") for text in sets)}
        fields |= {f"env.{key}": value for key, _, value in (text.partition("=") for text in env)}
        return cls(fields | ({"name": name} if name is not None else {}))

    def over(self, data: dict[str, Any]) -> dict[str, Any]:
        """The file's fields with these in their places."""
        data = dict(data)
        for path, value in self.fields.items():
            # The name of a variable is one word, whatever is in it.
            parts = path.split(".", 1) if path.startswith("env.") else path.split(".")
            inner = data
            for part in parts[:-1]:
                there = inner.get(part)
                inner[part] = dict(there) if isinstance(there, dict) else {}
                inner = inner[part]
            inner[parts[-1]] = value
        return data
