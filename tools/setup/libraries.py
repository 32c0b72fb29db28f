"""Users' own libraries of the clouds' storage, which the tests run as a job's program runs them.

They pin other versions of packages than Everspot, and so have an environment of their own.
"""

from pathlib import Path

from environment import UV
from problems import Missing
from steps import PYTHON, ROOT, STATE, Step, call

PINS = ROOT / "tools" / "libraries.txt"
FOLDER = STATE / "libraries"


def make_libraries() -> str:
    """Create the environment and install everything.

    Raises:
        Missing: no network, or Python without venv.
    """
    python = FOLDER / "bin" / "python"
    call([PYTHON, "-m", "venv", "--without-pip", "--clear", FOLDER], "libraries-venv")
    try:
        call([UV, "pip", "install", "--python", python, "-r", PINS], "libraries-uv")
    except Missing:
        # As in `environment`: uv does not read pip's configuration.
        call([PYTHON, "-m", "pip", "--python", python, "install", "--no-input", "-r", PINS], "libraries-pip")
        return "users' storage libraries, by pip"
    return "users' storage libraries, by uv"


step = Step("libraries", (PINS, Path(__file__)), lambda: [FOLDER / "bin" / "python"], make_libraries)
