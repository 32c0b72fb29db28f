"""Runs a program as users' wrappers do: HEED_WRAP is the command, in which TRAIN is the training program's."""

import os
import shlex
import subprocess
import sys

train = f"{sys.executable} heed.py"
sys.exit(subprocess.call(shlex.split(os.environ["HEED_WRAP"].replace("TRAIN", train))))
