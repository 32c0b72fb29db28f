"""The names of the installed Pulumi SDK, read from its generated sources."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

GETTER = re.compile(
    r'    @pulumi\.getter(?:\(name="(?P<name>\w+)"\))?\n(?:    @.*\n)*    def (?P<py>\w+)\(self\) -> (?P<type>.*):\n'
)
CLASS = re.compile(r"^class (\w+)", re.M)
ARG = re.compile(r"__args__\['(\w+)'\]")


class SdkError(LookupError):
    """The SDK lacks something that the bridge was asked for, or has it in a form that is not understood."""


@dataclass(frozen=True)
class Shape:
    """The type of one SDK property: `list`, `map`, `object` (with its class) or a scalar's Python name."""

    kind: str
    element: Shape | None = None
    cls: str = ""


@dataclass(frozen=True)
class Names:
    """The properties of one SDK type: what may be set and what is returned, by Pulumi name."""

    inputs: dict[str, Shape]
    outputs: dict[str, Shape]


def snake(name: str) -> str:
    """Return the snake_case form that the SDK's generator makes of a camelCase name."""
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name).lower()


def parse_shape(annotation: str) -> Shape:
    """Read a generated annotation, such as `pulumi.Input[Optional[Sequence[pulumi.Input['XArgs']]]]`."""
    text = annotation.strip()
    for wrapper in ("pulumi.Input[", "pulumi.Output[", "Optional["):
        if text.startswith(wrapper):
            return parse_shape(text[len(wrapper) : -1])
    if text.startswith("Sequence["):
        return Shape("list", parse_shape(text[9:-1]))
    if text.startswith("Mapping["):
        return Shape("map", parse_shape(text[8:-1].split(",", 1)[1]))
    if text.startswith("Union["):
        first = text[6:-1].split(",")[0].strip()
        return parse_shape(first) if first.startswith("_builtins") else Shape("any")
    if text.startswith("'"):
        return Shape("object", cls=text.strip("'").rsplit(".", 1)[-1])
    return Shape(text.removeprefix("_builtins."))


class Source:
    """One generated file, cut into its classes."""

    def __init__(self, path: Path) -> None:
        self.text = path.read_text()
        starts = [(m.group(1), m.start()) for m in CLASS.finditer(self.text)]
        ends = [s for _, s in starts[1:]] + [len(self.text)]
        self.spans = {name: (start, end) for (name, start), end in zip(starts, ends, strict=True)}

    def properties(self, cls: str) -> dict[str, Shape]:
        """Return the properties of one class by Pulumi name."""
        start, end = self.spans[cls]
        getters = GETTER.finditer(self.text, start, end)
        return {m["name"] or m["py"]: parse_shape(m["type"]) for m in getters}


class Sdk:
    """The SDK of one provider. `package`: its Python package."""

    def __init__(self, package: str) -> None:
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            raise SdkError(f"the Python package {package} is not installed")
        self.package = package
        self.root = Path(spec.origin).parent
        self.version = importlib.metadata.version(package.replace("_", "-"))
        self._source = cache(lambda path: Source(path))

    @cached_property
    def registry(self) -> dict[str, str]:
        """Every resource token of the SDK with the Python package that holds its class."""
        text = (self.root / "__init__.py").read_text()
        entry = r'"fqn": "([\w.]+)",\s+"classes": \{\s+"([^"]+)": "\w+"'
        return {m.group(2): m.group(1) for m in re.finditer(entry, text)}

    def resource(self, token: str) -> Names:
        """Return the names of a resource type.

        Raises:
            SdkError: the SDK has no such resource.
        """
        if token not in self.registry:
            raise SdkError(f"the SDK {self.version} has no resource {token}")
        cls = token.rsplit(":", 1)[1]
        source = self._module(self.registry[token], cls, "(pulumi.CustomResource)")
        # `InitArgs`, where `Args` is taken by a nested type of the same name.
        args = f"{cls}Args" if f"{cls}Args" in source.spans else f"{cls}InitArgs"
        return Names(source.properties(args), {"id": Shape("str"), **source.properties(cls)})

    def function(self, token: str) -> Names:
        """Return the names of a function (data source).

        Raises:
            SdkError: the SDK has no such function.
        """
        _, module, name = token.split(":")
        folder = module.split("/")[0]
        package = self.package if folder == "index" else f"{self.package}.{folder}"
        source = self._module(package, name, "Result")
        cls = f"{name[0].upper()}{name[1:]}Result"
        outputs = source.properties(cls)
        args = set(ARG.findall(source.text))
        return Names({n: outputs.get(n, Shape("any")) for n in args}, outputs)

    def provider(self) -> dict[str, Shape]:
        """Return the names of the provider's own configuration."""
        return self._source(self.root / "provider.py").properties("ProviderArgs")

    def nested(self, token: str, cls: str) -> dict[str, Shape]:
        """Return the properties of a nested class that a resource or function refers to."""
        folder = self.registry.get(token, "").removeprefix(self.package).strip(".") or token.split(":")[1].split("/")[0]
        base = self.root if folder in ("index", "", "providers") else self.root / folder
        for name in ("_inputs.py", "outputs.py"):
            source = self._source(base / name)
            if cls in source.spans:
                return source.properties(cls)
        raise SdkError(f"the SDK's {base.name} has no class {cls}")

    def _module(self, package: str, name: str, marker: str) -> Source:
        folder = self.root / package.removeprefix(self.package).strip(".").replace(".", "/")
        likely = folder / f"{snake(name)}.py"
        cls = f"{name[0].upper()}{name[1:]}"
        head = f"class {cls}{marker}"
        if likely.exists() and head in likely.read_text():
            return self._source(likely)
        for path in sorted(folder.glob("*.py")):
            if head in path.read_text():
                return self._source(path)
        raise SdkError(f"{package} has no class for {name}")
