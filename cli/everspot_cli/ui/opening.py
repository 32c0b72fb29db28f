"""Opens the web UI in the user's browser.

All users of a machine can see the arguments of a program. The browser therefore gets the name of a file that only this
user can read, and the file leads to the address with a key.
"""

import atexit
import os
import tempfile
import webbrowser
from html import escape
from pathlib import Path

from everspot_cli.ui.guard import Keys

_PAGE = (
    '<!doctype html><meta charset="utf-8"><title>Everspot</title><meta http-equiv="refresh" content="0; url={url}">'
    '<a href="{url}">everspot ui</a>\n'
)


class Doorway:
    """The file of one run. It exists until its address is opened, or the web UI ends."""

    def __init__(self, keys: Keys) -> None:
        self._path = _new_file()
        atexit.register(self.remove)
        self._path.write_text(_PAGE.format(url=escape(keys.url_once(self.remove))))

    def open(self) -> None:
        """Open it in the browser."""
        webbrowser.open(self._path.as_uri())

    def remove(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)


def _new_file() -> Path:
    """Return an empty file of this user alone: in the home folder, since browsers in a sandbox, such as those of snap,
    read neither hidden folders nor /tmp; otherwise among temporary files."""
    try:
        file, name = tempfile.mkstemp(".html", "everspot-ui-", Path.home())
    except (OSError, RuntimeError):  # no such folder, or no such user
        file, name = tempfile.mkstemp(".html", "everspot-ui-")
    os.close(file)
    return Path(name)
