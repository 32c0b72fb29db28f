"""The source of a function of a notebook or of a script, with everything that it uses, as a module of its own.

No code object leaves this process: a job gets source text, which any version of Python reads or refuses.
"""

import __future__

import ast
import builtins
import functools
import importlib.util
import inspect
import io
import linecache
import site
import symtable
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

LONGEST_CONSTANT = 64 << 10
"""Characters of a constant that goes along as source."""
JOB_MARK = "__everspot_job__"
"""An attribute of `everspot.job` and of the decorators that it returns: it is True."""
_MODULE_NAMES = frozenset(
    f"__{name}__"
    for name in ("annotations", "builtin", "builtins", "cached", "doc", "file", "loader", "name", "package", "spec")
)
"""Names that each module has by itself."""
FUNCTION_MARK = "__everspot_function__"
"""An attribute of a decorated function: the function itself."""
_FUTURES = __future__.annotations.compiler_flag
_Definition = ast.FunctionDef | ast.ClassDef
_loaded_sources: dict[str, str] = {}
"""By file name, the source of files and cells as it was when a function in them was decorated."""


def record_source(function: FunctionType) -> None:
    """Record the source around a function that is defined just now. A later edit of its file is then noticed, also
    where no code object shows it: in defaults and in attributes of classes."""
    if function.__module__ == "__main__":
        _loaded_sources[function.__code__.co_filename] = _read_source(function.__code__)


class SourceCollector:
    """Collects the source of a function of `__main__`, and of the functions and classes there that it uses.

    Args:
        function: the function.
        folder: the code that the job has besides; None: none.

    Attributes:
        problems: why something cannot go along, each with its name in front.
    """

    def __init__(self, function: FunctionType, folder: Path | None) -> None:
        self.problems: list[str] = []
        self._function = function
        self._namespace = function.__globals__
        self._folder = folder
        self._imports: dict[str, None] = {}
        self._texts: list[str] = []
        self._bound = {function.__name__}
        self._lazy_annotations = False

    def add_function(self) -> None:
        """Add the function, and what it uses."""
        self._add_definition(self._function.__name__, [self._function.__code__])

    def text(self) -> str:
        """Return the module."""
        future = ["from __future__ import annotations\n"] if self._lazy_annotations else []
        return "\n\n".join([*future, "\n".join(self._imports), *self._texts]).strip() + "\n"

    def _add_definition(self, name: str, codes: Sequence[CodeType]) -> None:
        source = _find_definition(name, codes, self._namespace)
        if source is None:
            self.problems.append(f"{name}: its source is not known, or has changed since it was defined: run it again")
            return
        self._lazy_annotations |= bool(codes[0].co_flags & _FUTURES)
        text, node = source
        for used_name in sorted(_global_names(text) - {name}):
            self._add_name(used_name, name, node)
        self._texts.append(text)

    def _add_name(self, name: str, user: str, node: _Definition) -> None:
        namespace = self._namespace
        if name in _MODULE_NAMES or (name not in namespace and (name.startswith("__") or hasattr(builtins, name))):
            return
        if name not in namespace:
            self.problems.append(f"{user}: it uses {name}, which is not defined")
            return
        value = getattr(namespace[name], FUNCTION_MARK, namespace[name])
        if name in self._bound and not isinstance(value, ModuleType):
            return
        self._bound.add(name)
        if isinstance(value, ModuleType):
            self._add_module(name, value, user, node)
        elif getattr(value, "__module__", None) == "__main__" and isinstance(
            inspect.unwrap(value), FunctionType | type
        ):
            self._add_own(name, value, user)
        elif (home := _find_home(name, value)) is not None:
            module, attribute = home
            if self._is_available(sys.modules[module], name, user):
                self._imports[f"from {module} import {_renamed(attribute, name)}"] = None
        elif (literal := _literal_text(value)) is not None and len(literal) <= LONGEST_CONSTANT:
            self._texts.append(f"{name} = {literal}")
        else:
            kind = type(value).__qualname__
            self.problems.append(f"{user}: it uses {name}, a {kind}: make it inside, or give it as an argument")

    def _add_own(self, name: str, value: Any, user: str) -> None:
        """Add a function or class of `__main__`."""
        if value.__qualname__ != name:
            problem = describe_nested(value) or f"it is {value.__qualname__} by another name"
            self.problems.append(f"{user}: it uses {name}: {problem}")
            return
        function = inspect.unwrap(value)
        codes = [function.__code__] if isinstance(function, FunctionType) else list(_method_codes(function))
        if codes:
            self._add_definition(name, codes)
        else:
            reason = "which has no method, so that Python keeps no source of it: give it one, or a module of `code`"
            self.problems.append(f"{user}: it uses the class {name}, {reason}")

    def _add_module(self, name: str, module: ModuleType, user: str, node: ast.AST) -> None:
        real_name = module.__name__
        if not self._is_available(module, name, user):
            return
        self._imports[f"import {real_name}" if real_name == name else f"import {real_name} as {name}"] = None
        for path in _attribute_paths(node, name):  # `import torch.utils.data` binds torch alone
            submodule = f"{real_name}.{path}"
            if isinstance(sys.modules.get(submodule), ModuleType):
                self._imports[f"import {submodule}"] = None

    def _is_available(self, module: ModuleType, name: str, user: str) -> bool:
        """Return whether an instance can import the module. Everything that is installed here counts."""
        file = getattr(module, "__file__", None)
        path = Path(file).resolve() if file else None
        if path is None or is_installed(path) or (self._folder is not None and path.is_relative_to(self._folder)):
            return True
        self.problems.append(f"{user}: it uses {name} of {path}: name its folder in `code`")
        return False


def describe_nested(value: Any) -> str | None:
    """Return why a function or class cannot be a job's because of where it is defined; None if it can."""
    if value.__name__ == "<lambda>":
        return "it is a lambda: write it as `def`"
    if "<locals>" in value.__qualname__:
        outer = value.__qualname__.partition(".<locals>")[0]
        return f"it is defined inside {outer}, whose variables do not go along: define it at the top level"
    if "." in value.__qualname__:
        return f"it is a method of {value.__qualname__.rpartition('.')[0]}: write a function that calls it"
    return None


def is_installed(path: Path) -> bool:
    """Return whether a file is of Python or of an installed package, which an instance has too or gets by
    `requirements`."""
    places = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    places |= {*site.getsitepackages(), site.getusersitepackages()}
    return any(path.is_relative_to(Path(place).resolve()) for place in places) or _is_of_everspot(path)


def _is_of_everspot(path: Path) -> bool:
    """Return whether a file is of a package of Everspot, which may be installed from a checkout."""
    packages = ("everspot", "everspot_core", "everspot_store", "everspot_clouds", "everspot_train")
    specs = [importlib.util.find_spec(package) for package in packages]
    folders = [place for spec in specs if spec is not None for place in spec.submodule_search_locations or ()]
    return any(path.is_relative_to(Path(folder).resolve()) for folder in folders)


def _read_source(code: CodeType) -> str:
    linecache.checkcache(code.co_filename)
    return "".join(linecache.getlines(code.co_filename))


def _find_definition(name: str, codes: Sequence[CodeType], namespace: dict[str, Any]) -> tuple[str, _Definition] | None:
    """Return the source and the syntax of the top-level definition that code objects are of: a function's, or all
    methods' of a class. None if the source is not known.

    A file may have been edited since it was imported. So the source counts only if it compiles to the same code, and is
    that of `record_source` if there is one.
    """
    first, *others = codes
    source = _read_source(first)
    flags = first.co_flags & _FUTURES | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT  # as in a cell
    try:
        compiled = compile(source, first.co_filename, "exec", flags=flags, dont_inherit=True)
        node = _find_node(name, first, source)
        loaded = _find_node(name, first, _loaded_sources.get(first.co_filename, source))
    except (SyntaxError, ValueError):
        return None
    nested = list(_nested_codes(compiled))
    in_file = [first, *(code for code in others if code.co_filename == first.co_filename)]
    if not all(any(_same_code(code, other) for other in nested) for code in in_file):
        return None
    if node is None or loaded is None or ast.dump(node) != ast.dump(loaded):
        return None
    return _without_job(node, source, namespace), node


def _find_node(name: str, code: CodeType, source: str) -> _Definition | None:
    """Return the top-level definition with this name and this code in a source."""
    flags = code.co_flags & _FUTURES | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST
    tree = compile(source, code.co_filename, "exec", flags=flags, dont_inherit=True)
    for node in _top_level(tree.body):
        first_line = min(part.lineno for part in (node, *node.decorator_list))
        if node.name == name and first_line <= code.co_firstlineno <= (node.end_lineno or first_line):
            return node
    return None


def _top_level(body: Sequence[ast.stmt | ast.ExceptHandler]) -> Iterator[_Definition]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.ExceptHandler):
            for field in ("body", "handlers", "orelse", "finalbody"):
                yield from _top_level(getattr(node, field, []))


def _without_job(node: _Definition, source: str, namespace: dict[str, Any]) -> str:
    """Return the source of a definition from below the decorator `everspot.job`, if it has one.

    An indented definition keeps its indentation, in an `if`: texts in it may have several lines.
    """
    decorators = node.decorator_list
    job_at = next((n for n, decorator in enumerate(decorators) if _is_job(decorator, namespace)), -1)
    # As Python counts lines: `str.splitlines` also ends them at a form feed or at U+2028, inside texts, too.
    lines = io.StringIO(source, newline=None).readlines()[node.lineno - 1 : node.end_lineno]
    indent = lines[0][: node.col_offset].rpartition("\f")[2]  # Python counts columns from a form feed
    below = [f"{indent}@{ast.get_source_segment(source, decorator)}\n" for decorator in decorators[job_at + 1 :]]
    return "".join([*(["if True:\n"] if indent else []), *below, *lines]).rstrip()


def _is_job(decorator: ast.expr, namespace: dict[str, Any]) -> bool:
    target = decorator
    while isinstance(target, ast.Call):
        target = target.func
    first, *others = ast.unparse(target).split(".")
    value = namespace.get(first)
    for part in others:
        value = getattr(value, part, None)
    while isinstance(value, functools.partial):
        value = value.func
    return getattr(value, JOB_MARK, False) is True


def _nested_codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _nested_codes(constant)


def _same_code(first: CodeType, second: CodeType) -> bool:
    fields = (
        "co_name",
        "co_firstlineno",
        "co_code",
        "co_names",
        "co_varnames",
        "co_freevars",
        "co_argcount",
        "co_kwonlyargcount",
    )
    if any(getattr(first, field) != getattr(second, field) for field in fields):
        return False
    pairs = zip(first.co_consts, second.co_consts, strict=False)
    return len(first.co_consts) == len(second.co_consts) and all(
        _same_code(a, b) if isinstance(a, CodeType) and isinstance(b, CodeType) else repr(a) == repr(b)
        for a, b in pairs
    )


def _method_codes(value: type) -> Iterator[CodeType]:
    for attribute in vars(value).values():
        function = getattr(attribute, "__func__", getattr(attribute, "fget", attribute))
        function = inspect.unwrap(function) if callable(function) else function
        code = getattr(function, "__code__", None)
        if not isinstance(code, CodeType) or function.__globals__.get("__name__") != "__main__":
            continue
        if code.co_filename == "<string>":  # a method that a dataclass has
            continue
        if function.__qualname__.startswith(f"{value.__qualname__}."):
            yield code


def _global_names(text: str) -> set[str]:
    """Return the names of the module that a definition uses, in its body and where it is defined."""
    module = symtable.symtable(text, "<everspot>", "exec")
    names = {symbol.get_name() for symbol in module.get_symbols() if symbol.is_referenced()}
    pending = list(module.get_children())
    while pending:
        table = pending.pop()
        pending += table.get_children()
        names |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global() and symbol.is_referenced()}
    return names


def _attribute_paths(node: ast.AST, name: str) -> set[str]:
    """Return `utils` and `utils.data` for `torch.utils.data.DataLoader`, with `name` torch."""
    paths = set()
    for attribute in ast.walk(node):
        parts: list[str] = []
        inner: ast.AST = attribute
        while isinstance(inner, ast.Attribute):
            parts.insert(0, inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name) and inner.id == name and parts:
            paths.add(".".join(parts))
    return paths


def _find_home(name: str, value: Any) -> tuple[str, str] | None:
    """Return the module, and the name in it, from which a value can be imported; None: no such module is known."""
    modules = (getattr(value, "__module__", None), type(value).__module__)
    for module in modules:
        if not isinstance(module, str) or module in ("__main__", "builtins") or module not in sys.modules:
            continue
        for attribute in (getattr(value, "__name__", None), getattr(value, "_name", None), name):
            if isinstance(attribute, str) and getattr(sys.modules[module], attribute, None) is value:
                return module, attribute
    return None


def _renamed(attribute: str, name: str) -> str:
    return attribute if attribute == name else f"{attribute} as {name}"


def _literal_text(value: Any) -> str | None:
    """Return the source of a constant; None if the value is no constant.

    It is the same in every process: the order in which Python goes through a set of texts is not. So the same function
    has the same code, and `cache` finds the earlier job.
    """
    try:
        return _write_literal(value)
    except (ValueError, RecursionError):
        return None


def _write_literal(value: Any) -> str:
    kind = type(value)
    if value is None or kind in (bool, int, float, complex, str, bytes):
        text = repr(value)
        if repr(ast.literal_eval(text)) != text:  # such as `inf`, which is a name
            raise ValueError(f"{text} is no literal")
        return text
    if kind is dict:
        return "{" + ", ".join(f"{_write_literal(key)}: {_write_literal(item)}" for key, item in value.items()) + "}"
    if kind not in (list, tuple, set, frozenset):
        raise ValueError(f"{kind.__qualname__} is no type of a literal")
    items = [_write_literal(item) for item in value]
    if kind is list:
        return f"[{', '.join(items)}]"
    if kind is tuple:
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    members = f"{{{', '.join(sorted(items))}}}" if items else ""
    return f"frozenset({members})" if kind is frozenset else members or "set()"
