"""Takes memory until somebody ends it, by two processes: the second one is what the kernel ends."""

import subprocess
import sys
import time

TAKE = """
parts = []
while True:
    parts.append(b"x" * (16 << 20))
"""
print("hungry", flush=True)
subprocess.run([sys.executable, "-c", TAKE], check=False)
time.sleep(10_000)  # the whole job ends with one of its processes
