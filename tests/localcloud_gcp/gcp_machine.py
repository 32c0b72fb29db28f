"""The program on the tests' instances: a machine with a child process, which follows its metadata and requests its
identity."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


def fetch(path: str) -> str:
    """One value of the metadata server."""
    url = f"http://{os.environ['GCE_METADATA_HOST']}/computeMetadata/v1/{path}"
    request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
    with urllib.request.urlopen(request) as answer:
        return str(answer.read().decode())


class Well(BaseHTTPRequestHandler):
    """Answers every health check."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_args: object) -> None: ...


def main() -> None:
    """Do what the metadata says."""
    order = json.loads(fetch("instance/attributes/order"))
    Path("environment.json").write_text(json.dumps(dict(os.environ)))
    if order["do"] == "exit":
        sys.exit(int(order["code"]))
    if order.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: (Path("tidied").touch(), sys.exit(0)))
    if order.get("well"):
        host, _, port = os.environ["EVERSPOT_HEALTH"].rpartition(":")
        threading.Thread(target=HTTPServer((host, int(port)), Well).serve_forever, daemon=True).start()
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path("ready").write_text(fetch("instance/id"))
    print("up", flush=True)
    while True:
        time.sleep(600)


main()
