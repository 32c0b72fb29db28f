"""The effort of a call, as the interpreter's operations: the same on every machine."""

import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any


def count_operations(call: Callable[[], Any], module: ModuleType | None = None) -> int:
    """Return the number of operations of the call; with a module, only of those in its code."""
    count = 0
    path = module.__file__ if module is not None else None

    def trace(frame: FrameType, kind: str, _: object) -> Any:
        nonlocal count
        if path is not None and frame.f_code.co_filename != path:
            return None
        frame.f_trace_opcodes, count = True, count + (kind == "opcode")
        return trace

    previous_trace = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(previous_trace)
    return count
