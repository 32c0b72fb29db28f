"""A wrapper that handles SIGTERM itself, and does not pass it on to the training program below it."""

import signal
import subprocess
import sys

signal.signal(signal.SIGTERM, lambda *_: print("the wrapper was told", flush=True))
sys.exit(subprocess.call([sys.executable, "heed.py"]))
