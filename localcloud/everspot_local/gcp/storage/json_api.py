"""Stands in for Cloud Storage's JSON API over the same buckets and objects as the XML API.

It has buckets, their policies, and of objects: list, get, insert, patch, delete, compose, copy, rewrite and restore. It
has no ACLs, no notifications, and of preconditions of writes those on generations, and on metagenerations of buckets.
Source: storage.v1.json.
"""

import base64
import json
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from everspot_local.gcp.answers import ApiError, Reply, not_here
from everspot_local.gcp.iam.policies import Policies
from everspot_local.gcp.iam.policy_calls import HasPermission
from everspot_local.gcp.refusals import bad
from everspot_local.gcp.router import Handler, Request, related_parts
from everspot_local.gcp.storage.buckets import BucketDocuments, translated
from everspot_local.gcp.storage.object_model import Stored
from everspot_local.gcp.storage.objects import PAGE, Objects
from everspot_local.gcp.storage.resumable import ResumableUploads
from everspot_local.gcp.storage.transfers import Conditions, check_digests, ranged
from everspot_local.market.clock import stamp

Document = dict[str, Any]
COMPOSED_AT_MOST = 32
_UNKNOWN = ("ifGenerationNotMatch", "ifMetagenerationMatch", "ifMetagenerationNotMatch", "kmsKeyName", "predefinedAcl",
            "destinationPredefinedAcl", "predefinedDefaultObjectAcl", "matchGlob", "startOffset", "endOffset",
            "overrideUnlockedRetention", "includeTrailingDelimiter", "destinationKmsKeyName",
            "ifSourceGenerationMatch", "ifSourceGenerationNotMatch", "ifSourceMetagenerationMatch",
            "ifSourceMetagenerationNotMatch", "rewriteToken")  # fmt: skip
"""Parameters that would change the answer."""
_CONDITIONS = ("ifGenerationMatch", "ifGenerationNotMatch", "ifMetagenerationMatch", "ifMetagenerationNotMatch")
"""What a read may ask of an object, in the order of `Conditions`."""


class JsonApi:
    """Buckets and objects by JSON.

    Args:
        buckets: their settings.
        objects: the objects of the buckets.
        policies: of the buckets.
        has_permission: whether a caller has a permission on a resource.
        project: id and number.
        agent: email of Cloud Storage's own account in the project.
        uploads: the sessions of resumable uploads.
    """

    def __init__(
        self,
        buckets: BucketDocuments,
        objects: Objects,
        policies: Policies,
        has_permission: HasPermission,
        project: tuple[str, str],
        agent: str,
        uploads: ResumableUploads,
    ) -> None:
        self._buckets, self._objects, self._policies, self._agent = buckets, objects, policies, agent
        self._has_permission, self._project, self._uploads = has_permission, project, uploads

    def routes(self) -> Mapping[str, Handler]:
        """Return handlers by method id."""
        return {
            # Always empty; the provider lists them before it deletes a bucket with its objects.
            "storage.anywhereCaches.list": lambda r: {
                "kind": "storage#anywhereCaches", "items": [] if self._buckets.get(r.params["bucket"]) else None,
            },
            "storage.buckets.delete": self._delete_bucket,
            "storage.buckets.get": lambda r: self._buckets.get(r.params["bucket"]),
            "storage.buckets.getIamPolicy": self._read_policy,
            "storage.buckets.insert": self._insert_bucket,
            "storage.buckets.list": self._list_buckets,
            "storage.buckets.lockRetentionPolicy": lambda r: self._buckets.lock(
                r.params["bucket"], r.params["ifMetagenerationMatch"]
            ),
            "storage.buckets.patch": lambda r: self._buckets.patch(
                r.params["bucket"], r.body, r.params.get("ifMetagenerationMatch")
            ),
            "storage.buckets.setIamPolicy": self._write_policy,
            "storage.buckets.testIamPermissions": self._test,
            "storage.buckets.update": lambda r: self._buckets.update(
                r.params["bucket"], r.body, r.params.get("ifMetagenerationMatch")
            ),
            "storage.objects.compose": self._compose,
            "storage.objects.copy": self._copy,
            "storage.objects.delete": self._delete,
            "storage.objects.get": self._get,
            "storage.objects.insert": self._insert,
            "storage.objects.list": self._list,
            "storage.objects.patch": self._patch,
            "storage.objects.restore": self._restore,
            "storage.objects.rewrite": self._rewrite,
            "storage.projects.serviceAccount.get": lambda _r: {
                "kind": "storage#serviceAccount", "email_address": self._agent,
            },
        }  # fmt: skip

    def _insert_bucket(self, request: Request) -> Document:
        self._check_project(request)
        _refuse_unknown(request)
        bucket = self._buckets.insert(request.body)
        self._policies.begin(_bucket_name(bucket["name"]), self._first_policy(bucket))
        return bucket

    def _first_policy(self, bucket: Document) -> list[Document]:
        """Return a new bucket's policy for the project's owners, editors and viewers ("IAM roles for Cloud
        Storage")."""
        owners = [f"projectEditor:{self._project[0]}", f"projectOwner:{self._project[0]}"]
        viewers = [f"projectViewer:{self._project[0]}"]
        kinds = ["Bucket"]
        if bucket["iamConfiguration"]["uniformBucketLevelAccess"]["enabled"]:
            kinds.append("Object")
        return [
            {"role": f"roles/storage.legacy{kind}{role_suffix}", "members": members}
            for kind in kinds
            for role_suffix, members in (("Owner", owners), ("Reader", viewers))
        ]

    def _list_buckets(self, request: Request) -> Document:
        self._check_project(request)
        return {"kind": "storage#buckets", "items": self._buckets.all(request.params.get("prefix", ""))}

    def _delete_bucket(self, request: Request) -> None:
        name = request.params["bucket"]
        self._buckets.delete(name, request.params.get("ifMetagenerationMatch"))
        self._policies.forget(_bucket_name(name))

    def _read_policy(self, request: Request) -> Document:
        name = request.params["bucket"]
        self._buckets.get(name)
        return self._policy_document(name, self._policies.read(_bucket_name(name), _version(request)))

    def _write_policy(self, request: Request) -> Document:
        name = request.params["bucket"]
        bucket = self._buckets.get(name)
        members = {m for b in request.body.get("bindings") or [] for m in b.get("members") or []}
        prevention = bucket["iamConfiguration"]["publicAccessPrevention"]
        if prevention == "enforced" and members & {"allUsers", "allAuthenticatedUsers"}:
            raise ApiError(412, "conditionNotMet", "The member bindings allUsers and allAuthenticatedUsers are not"
                           " allowed since public access prevention is enforced.")  # fmt: skip
        conditional = any(b.get("condition") for b in request.body.get("bindings") or [])
        if conditional and not bucket["iamConfiguration"]["uniformBucketLevelAccess"]["enabled"]:
            raise ApiError(412, "conditionNotMet", "Conditions on bucket policies need uniform bucket-level access.")
        return self._policy_document(name, self._policies.write(_bucket_name(name), request.body, convenience=True))

    def _policy_document(self, name: str, policy: Document) -> Document:
        return {"kind": "storage#policy", "resourceId": _bucket_name(name), **policy}

    def _test(self, request: Request) -> Document:
        name = request.params["bucket"]
        self._buckets.get(name)
        permissions = request.params.get("permissions", [])
        granted = [p for p in permissions if self._has_permission(request.caller, p, _bucket_name(name))]
        return {"kind": "storage#testIamPermissionsResponse", "permissions": granted}

    def _list(self, request: Request) -> Document:
        _refuse_unknown(request)
        bucket, params = request.params["bucket"], request.params
        self._buckets.get(bucket)
        if params.get("softDeleted") or params.get("versions"):
            others = self._objects.others(bucket, soft_deleted=bool(params.get("softDeleted")))
            matching = [(n, s) for n, s in others if n.startswith(params.get("prefix", ""))]
            if params.get("versions"):
                matching += list(self._objects.page(bucket, params.get("prefix", ""), "", "", PAGE).objects.items())
            items = [self._object(bucket, n, s) for n, s in sorted(matching, key=lambda f: (f[0], f[1].generation))]
            return {"kind": "storage#objects", "items": items}
        with translated():
            page = self._objects.page(
                bucket, params.get("prefix", ""), params.get("delimiter", ""),
                base64.urlsafe_b64decode(params.get("pageToken", "")).decode(), int(params.get("maxResults") or PAGE),
            )  # fmt: skip
        more = base64.urlsafe_b64encode(page.more.encode()).decode()
        return {
            "kind": "storage#objects",
            "items": [self._object(bucket, name, stored) for name, stored in page.objects.items()],
            "prefixes": list(page.prefixes),
            "nextPageToken": more or None,
        }

    def _get(self, request: Request) -> Document | Reply:
        _refuse_unknown(request, _CONDITIONS)
        bucket, name = request.params["bucket"], request.params["object"]
        range_header = next((value for key, value in request.headers.items() if key.lower() == "range"), None)
        with translated():
            stored = self._objects.get(bucket, name, _number(request, "generation"))
            generation, not_generation, metageneration, not_metageneration = (_number(request, c) for c in _CONDITIONS)
            Conditions(generation, not_generation, metageneration, not_metageneration).check(stored)
            if request.params.get("alt") == "media":
                read = ranged(stored.data, range_header)
                headers = {"ETag": stored.etag, "X-Goog-Generation": str(stored.generation), **read.headers}
                return Reply(read.data, read.status, stored.content_type, headers)
        return self._object(bucket, name, stored)

    def _insert(self, request: Request) -> Document | Reply:
        _refuse_unknown(request)
        self._buckets.get(request.params["bucket"])
        resumable = request.media is not None and request.params.get("uploadType") == "resumable"
        metadata, data = (request.body, b"") if resumable else _uploaded(request)
        if not request.params.get("name") and not metadata.get("name"):
            raise ApiError(400, "required", "Required")
        if resumable:
            return self._uploads.begin(request.params, metadata, request.headers, self._write)
        with translated():
            check_digests(data, request.headers)
        return self._write(request.params, metadata, data)

    def _write(self, params: Mapping[str, Any], metadata: Document, data: bytes) -> Document:
        """Write an object, by the parameters and the metadata that its upload came with."""
        bucket, name = params["bucket"], params.get("name") or metadata["name"]
        with translated():
            check_digests(data, {}, metadata)
            stored = self._objects.put(
                bucket, name, data, _integer(params.get("ifGenerationMatch")),
                content_type=metadata.get("contentType") or "application/octet-stream",
                metadata=metadata.get("metadata") or {},
            )  # fmt: skip
        return self._object(bucket, name, stored)

    def _patch(self, request: Request) -> Document:
        _refuse_unknown(request)
        if unknown := sorted(set(request.body) - {"contentType", "metadata"}):
            raise not_here(f"changes of {', '.join(unknown)} of objects")
        bucket, name = request.params["bucket"], request.params["object"]
        with translated():
            current = self._objects.get(bucket, name)
            metadata = {**current.metadata, **(request.body.get("metadata") or {})}
            stored = self._objects.change(
                bucket, name, content_type=request.body.get("contentType") or current.content_type,
                metadata={key: value for key, value in metadata.items() if value is not None},
            )  # fmt: skip
        return self._object(bucket, name, stored)

    def _delete(self, request: Request) -> None:
        _refuse_unknown(request)
        with translated():
            self._objects.delete(
                request.params["bucket"], request.params["object"], _number(request, "ifGenerationMatch"),
                _number(request, "generation"),
            )  # fmt: skip

    def _compose(self, request: Request) -> Document:
        _refuse_unknown(request)
        bucket, name = request.params["destinationBucket"], request.params["destinationObject"]
        sources = request.body.get("sourceObjects") or []
        if not 1 <= len(sources) <= COMPOSED_AT_MOST:
            raise bad(f"The number of source components provided ({len(sources)}) must be 1 to {COMPOSED_AT_MOST}.")
        with translated():
            parts = [self._objects.get(bucket, s["name"], _integer(s.get("generation"))).data for s in sources]
            stored = self._objects.put(bucket, name, b"".join(parts), _number(request, "ifGenerationMatch"))
        return self._object(bucket, name, stored)

    def _copy(self, request: Request) -> Document:
        """Copy an object, with its metadata unless the request has others ("Objects: copy")."""
        _refuse_unknown(request)
        bucket, name = request.params["destinationBucket"], request.params["destinationObject"]
        with translated():
            source = self._objects.get(
                request.params["sourceBucket"], request.params["sourceObject"], _number(request, "sourceGeneration")
            )
            stored = self._objects.put(
                bucket, name, source.data, _number(request, "ifGenerationMatch"),
                content_type=request.body.get("contentType") or source.content_type,
                metadata=request.body.get("metadata") or ({} if request.body else source.metadata),
            )  # fmt: skip
        return self._object(bucket, name, stored)

    def _rewrite(self, request: Request) -> Document:
        """Copy an object in one call, however large it is ("Objects: rewrite")."""
        copy = self._copy(request)
        size = copy["size"]
        return {
            "kind": "storage#rewriteResponse", "totalBytesRewritten": size, "objectSize": size, "done": True,
            "resource": copy,
        }  # fmt: skip

    def _restore(self, request: Request) -> Document:
        bucket, name = request.params["bucket"], request.params["object"]
        generation = _number(request, "generation")
        for key, stored in self._objects.others(bucket, soft_deleted=True):
            if key == name and stored.generation == generation:
                with translated():
                    restored = self._objects.put(
                        bucket, name, stored.data, None, content_type=stored.content_type, metadata=stored.metadata
                    )
                return self._object(bucket, name, restored)
        raise ApiError(404, "notFound", f"No such object: {bucket}/{name}")

    def _object(self, bucket: str, name: str, stored: Stored) -> Document:
        digest = stored.etag.strip('"')
        link = f"{self._buckets.get(bucket)['selfLink']}/o/{quote(name, safe='')}"
        document: Document = {
            "kind": "storage#object", "id": f"{bucket}/{name}/{stored.generation}", "name": name, "bucket": bucket,
            "selfLink": link,
            "mediaLink": f"{link.replace('/storage/', '/download/storage/')}?generation={stored.generation}&alt=media",
            "generation": str(stored.generation), "metageneration": str(stored.metageneration),
            "contentType": stored.content_type, "storageClass": "STANDARD", "size": str(len(stored.data)),
            "timeCreated": stamp(stored.at), "updated": stamp(stored.at), "etag": digest,
            "crc32c": stored.crc32c, "metadata": dict(stored.metadata),
            "timeDeleted": stamp(stored.ended) if stored.ended else None,
        }  # fmt: skip
        hold = self._buckets.get(bucket).get("retentionPolicy")
        if hold:
            document["retentionExpirationTime"] = stamp(stored.at + timedelta(seconds=int(hold["retentionPeriod"])))
        if len(digest) == 32:  # that of a multipart upload is no MD5
            document["md5Hash"] = base64.b64encode(bytes.fromhex(digest)).decode()
        return document

    def _check_project(self, request: Request) -> None:
        if request.params.get("project") not in self._project:
            raise bad(f"Unknown project id: {request.params.get('project')}")


def _bucket_name(name: str) -> str:
    return f"projects/_/buckets/{name}"


def _version(request: Request) -> int:
    return int(request.params.get("optionsRequestedPolicyVersion") or 1)


def _number(request: Request, name: str) -> int | None:
    return _integer(request.params.get(name))


def _integer(value: Any) -> int | None:
    return None if value is None else int(value)


def _refuse_unknown(request: Request, supported: Collection[str] = ()) -> None:
    if unknown := [name for name in _UNKNOWN if name not in supported and request.params.get(name)]:
        raise not_here(f"{', '.join(unknown)} of {request.method}")


def _uploaded(request: Request) -> tuple[Document, bytes]:
    """Return metadata and data of an upload, simple or multipart ("Uploads and downloads")."""
    if request.media is None:
        return request.body, b""
    headers = {key.lower(): value for key, value in request.headers.items()}
    content_type = headers.get("content-type", "")
    if not content_type.startswith("multipart/related"):
        return {"contentType": content_type}, request.media
    parts = related_parts(content_type, request.media)
    if len(parts) != 2:
        raise bad("Multipart upload body must have exactly 2 parts.")
    (_, described), (kind, data) = parts
    return {"contentType": kind, **json.loads(described)}, data
