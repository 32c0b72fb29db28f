"""Stands in for EC2's instance metadata service, in tests of the agent."""

import http.server
import json
import threading
from datetime import datetime

from everspot_core.cluster.manifest import Manifest


class MetadataServer:
    """Stands in for EC2's instance metadata service, version 2, of one instance; can be made flaky."""

    def __init__(self, pages: dict[str, str]) -> None:
        self.pages = dict(pages)
        self.tokens: set[str] = set()
        self.requests: list[tuple[str, str]] = []
        self.failures: list[int | None] = []  # answers to give first: a status, or None for hanging up
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                if self._fails():
                    return None
                if self.path != "/latest/api/token" or not self.headers["X-aws-ec2-metadata-token-ttl-seconds"]:
                    return self._answer(400, "")
                token = f"token-{len(outer.tokens)}"
                outer.tokens = {token}
                return self._answer(200, token)

            def do_GET(self) -> None:
                if self._fails():
                    return None
                if self.headers["X-aws-ec2-metadata-token"] not in outer.tokens:
                    return self._answer(401, "")
                page = outer.pages.get(self.path.lstrip("/"))
                return self._answer(404, "Not Found") if page is None else self._answer(200, page)

            def _fails(self) -> bool:
                outer.requests.append((self.command, self.path))
                if not outer.failures:
                    return False
                status = outer.failures.pop(0)
                if status is None:
                    self.close_connection = True
                else:
                    self._answer(status, "trouble")
                return True

            def _answer(self, status: int, text: str) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def announce_interruption(self, at: datetime) -> None:
        text = {"action": "terminate", "time": at.strftime("%Y-%m-%dT%H:%M:%SZ")}
        self.pages["latest/meta-data/spot/instance-action"] = json.dumps(text)

    def recommend_rebalance(self, at: datetime) -> None:
        text = {"noticeTime": at.strftime("%Y-%m-%dT%H:%M:%SZ")}
        self.pages["latest/meta-data/events/recommendations/rebalance"] = json.dumps(text)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def metadata_pages(manifest: Manifest, instance_id: str, market: str = "spot") -> dict[str, str]:
    return {
        "latest/user-data": manifest.to_json().decode(),
        "latest/meta-data/instance-id": instance_id,
        "latest/meta-data/instance-type": "m5.large",
        "latest/meta-data/placement/availability-zone": "us-east-1a",
        "latest/meta-data/instance-life-cycle": market,
    }
