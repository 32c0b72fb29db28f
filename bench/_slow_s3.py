"""An S3 that keeps objects in memory and answers every request after a fixed time: for programs whose time is waiting.

Only what the store asks for: GET, HEAD, PUT (with conditions), DELETE and ListObjectsV2, path style; signatures are not
looked at. Run as a program it takes a folder of objects, `bucket/key`, and prints its port.
"""

import asyncio
import hashlib
import sys
from bisect import bisect_left, bisect_right, insort
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 1000  # keys of one answer, as S3 has it
STAMP = datetime(2026, 1, 1, tzinfo=UTC)


class SlowS3:
    """The objects, and how long an answer takes, in seconds."""

    def __init__(self, objects: dict[str, bytes], delay: float) -> None:
        self.objects = objects
        self.keys = sorted(objects)
        self.delay = delay
        self.count = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, kept alive."""
        try:
            while line := await reader.readline():
                method, target, _ = line.decode().split(" ", 2)
                headers = {}
                while (field := (await reader.readline()).decode().strip()) != "":
                    name, _, value = field.partition(":")
                    headers[name.lower()] = value.strip()
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.count += 1
                await asyncio.sleep(self.delay)
                writer.write(self.answer(method, target, headers, body))
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> bytes:
        """The bytes of one answer."""
        parts = urlsplit(target)
        path, query = unquote(parts.path).lstrip("/"), parse_qs(parts.query, keep_blank_values=True)
        bucket, _, key = path.partition("/")
        if method == "GET" and not key:
            return _response(200, self.listing(bucket, query), "application/xml")
        if method == "PUT":
            current = self.objects.get(path)
            expected_etag = headers.get("if-match")
            if (current is not None and headers.get("if-none-match") == "*") or (
                expected_etag is not None and (current is None or expected_etag != _etag(current))
            ):
                return _response(412, b"<Error><Code>PreconditionFailed</Code></Error>", "application/xml")
            self.objects[path] = body
            if current is None:
                insort(self.keys, path)
            return _response(200, b"", etag=_etag(body))
        if method == "DELETE":
            if self.objects.pop(path, None) is not None:
                self.keys.remove(path)
            return _response(204, b"")
        content = self.objects.get(path) if key else b""
        if content is None:
            return _response(404, b"<Error><Code>NoSuchKey</Code></Error>", "application/xml")
        return _response(200, content, etag=_etag(content), head=method == "HEAD")

    def listing(self, bucket: str, query: dict[str, list[str]]) -> bytes:
        """ListObjectsV2: a page of keys below a prefix."""
        prefix, after = query.get("prefix", [""])[0], query.get("continuation-token", [""])[0]
        start = (
            bisect_right(self.keys, f"{bucket}/{max(prefix, after)}")
            if after
            else bisect_left(self.keys, f"{bucket}/{prefix}")
        )
        end = bisect_left(self.keys, f"{bucket}/{prefix}\U0010ffff")
        keys = [key[len(bucket) + 1 :] for key in self.keys[start : min(end, start + PAGE + 1)]]
        shown = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>{STAMP:%Y-%m-%dT%H:%M:%S.000Z}</LastModified>"
            f"<ETag>{escape(_etag(self.objects[f'{bucket}/{key}']))}</ETag>"
            f"<Size>{len(self.objects[f'{bucket}/{key}'])}</Size></Contents>"
            for key in keys[:PAGE]
        )
        more = len(keys) > PAGE
        token = f"<NextContinuationToken>{escape(keys[PAGE - 1])}</NextContinuationToken>" if more else ""
        head = f"<Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{min(len(keys), PAGE)}</KeyCount>"
        return (
            f"<ListBucketResult>{head}<IsTruncated>{str(more).lower()}</IsTruncated>{token}{shown}</ListBucketResult>"
        ).encode()


def _etag(body: bytes) -> str:
    return f'"{hashlib.md5(body).hexdigest()}"'


def _response(status: int, body: bytes, kind: str = "application/json", *, etag: str = "", head: bool = False) -> bytes:
    tag = f"ETag: {etag}\r\n" if etag else ""
    text = (
        f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nContent-Type: {kind}\r\n"
        f"Last-Modified: {STAMP:%a, %d %b %Y %H:%M:%S GMT}\r\nx-amz-bucket-region: us-east-1\r\n{tag}\r\n"
    )
    return text.encode() + (b"" if head else body)


async def main(folder: Path, delay: float) -> None:
    """Serve a folder's objects until the process is ended."""
    objects = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    objects = {name: body for name, body in objects.items() if "/.everspot-store/" not in name}
    server = await asyncio.start_server(SlowS3(objects, delay).serve, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2])))
