"""Describes the environment that a run's numbers depend on, and the age of this process."""

import os
import platform
import time
from functools import cache
from pathlib import Path

import torch
from pydantic import JsonValue

_CPUINFO = Path("/proc/cpuinfo")


@cache
def _cpuinfo() -> dict[str, str]:
    """Return the first processor's lines of /proc/cpuinfo; empty without that file."""
    if not _CPUINFO.exists():
        return {}
    first = _CPUINFO.read_text().split("\n\n", 1)[0]
    pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, value in pairs}


def cpu_model() -> str:
    """Return make and stepping of the processor. Equal processors execute the same instructions."""
    info = _cpuinfo()
    if "model name" not in info:
        return platform.processor() or platform.machine()
    return f"{info['model name']} ({info.get('cpu family')}/{info.get('model')}/{info.get('stepping')})"


def cpu_has_bf16() -> bool:
    """Return whether the processor has instructions for bf16 (AVX512_BF16, AMX, or ARM's bf16)."""
    info = _cpuinfo()
    flags = set((info.get("flags") or info.get("Features") or "").split())
    return bool(flags & {"avx512_bf16", "amx_bf16", "bf16"})


def gpu_memory_gib() -> float | None:
    """Return the peak GiB that torch has reserved on one GPU of this process; None without a GPU."""
    if not torch.cuda.is_initialized():
        return None
    return max(torch.cuda.max_memory_reserved(device) for device in range(torch.cuda.device_count())) / 2**30


def numeric_environment(device: torch.device, precision: str, world_size: int) -> dict[str, JsonValue]:
    """Return the values that must be equal for the next steps to be bit for bit equal."""
    return {
        "torch": str(torch.__version__),
        "cpu": cpu_model(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "precision": precision,
        "world_size": world_size,
    }


def process_age() -> float:
    """Return the real seconds since the start of this process, before interpreter and imports."""
    try:
        started_ticks = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
    except (OSError, IndexError, ValueError):
        return time.process_time()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")
