"""Calls one function with a job's arguments, and writes its result.

Usage: `everspot_function.py MODULE NAME ARGUMENTS PYTHON`. ARGUMENTS are JSON, and PYTHON is the version that the
function was submitted with. `everspot.job` copies this file into the job's code. So it needs nothing but Python, of any
version.
"""

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

SCRIPT = "everspot_function.py"
"""The name of this file in a job's code."""
DEEPEST = 100
"""The levels of lists and dictionaries in an argument or a result."""
MOST_DIGITS = 4300
"""The digits of a whole number that Python reads (`sys.int_info.default_max_str_digits`)."""
RESULT = "everspot-result.json"
"""The file of the outputs with the result: `{"result": …}`, or `{"refused": WHY}`."""


def main(module: str, name: str, arguments: str, python: str) -> None:
    """Call the function. The first process of the job writes its result."""
    try:
        function: Any = importlib.import_module(module)
    except SyntaxError as error:
        own = "{}.{}".format(*sys.version_info)
        if own == python:
            raise
        sys.exit(
            f"{name} was submitted by Python {python} and cannot be read by Python {own}, which runs here: {error}"
        )
    for part in name.split("."):
        function = getattr(function, part)
    result = function(**json.loads(arguments))
    if os.environ.get("RANK", "0") != "0":
        return
    try:
        document = {"result": to_plain(result, "the result")}
    except TypeError as error:  # the training is done all the same, and no retry would change that
        document = {"refused": str(error)}
        sys.stderr.write(f"everspot: {error}\n")
    path = Path(os.environ["EVERSPOT_OUTPUT_DIR"], RESULT)
    path.parent.mkdir(parents=True, exist_ok=True)
    part_file = path.with_name(f".{RESULT}.part")
    part_file.write_text(json.dumps(document), encoding="utf-8")
    part_file.replace(path)


def to_plain(value: Any, place: str, *, exact: bool = False, levels: int = DEEPEST) -> Any:
    """Return a value as JSON carries it.

    Args:
        value: anything.
        place: what it is, for the error.
        exact: refuse what the reader would get as another type: tuples, and numbers of numpy or torch.
        levels: how many levels of lists and dictionaries it may have.

    Raises:
        TypeError: if JSON does not carry it; it names the part.
    """
    if type(value) is int and abs(value) >= 10**MOST_DIGITS:
        raise TypeError(f"{place} is a whole number of more than {MOST_DIGITS} digits")
    if value is None or type(value) in (bool, int, float, str):
        return value
    if levels < 0:
        raise TypeError(f"{place.partition('[')[0]} has more than {DEEPEST} levels, or contains itself")
    if type(value) is dict:
        for key in value:
            if type(key) is not str:
                raise TypeError(f"{place} has the key {key!r}: JSON takes texts alone as keys")
        return {key: to_plain(item, f"{place}[{key!r}]", exact=exact, levels=levels - 1) for key, item in value.items()}
    if type(value) is list or (type(value) is tuple and not exact):
        return [
            to_plain(item, f"{place}[{number}]", exact=exact, levels=levels - 1) for number, item in enumerate(value)
        ]
    if not exact and getattr(value, "shape", None) == () and hasattr(value, "item"):  # one number of numpy or torch
        return to_plain(value.item(), place, levels=levels - 1)
    allowed = "dict, list, str, int, float, bool or None"
    raise TypeError(f"{place} is a {type(value).__module__}.{type(value).__qualname__}, and has to be {allowed}")


if __name__ == "__main__":
    main(*sys.argv[1:])
