"""The calls to the API server that the adapter makes, with the answers as the API writes them (JSON).

The methods raise the errors of `errors.ERRORS`.
"""

import json
import logging
import os
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from everspot_core.cluster.manifest import Manifest
from kubernetes import client, config, watch
from kubernetes.config import kube_config
from urllib3.exceptions import HTTPError
from urllib3.util import Retry

from everspot_clouds.base import CloudError, Trouble
from everspot_clouds.kubernetes.errors import GONE, NOT_FOUND, is_status
from everspot_clouds.kubernetes.rules import declared_namespace
from everspot_clouds.kubernetes.service_account import ServiceAccount, find_account

Document = dict[str, Any]
_CONNECT, _READ = timedelta(seconds=5), timedelta(seconds=15)
_log = logging.getLogger(__name__)
_CLAIMS = ("karpenter.sh", "v1", "nodeclaims")
_TIMEOUT = (_CONNECT.total_seconds(), _READ.total_seconds())
_RETRIES = Retry(total=1, connect=1, read=0, redirect=0, status=0, respect_retry_after_header=False)
"""By default urllib3 sends a request four times, and sleeps as long as `Retry-After` says. A scheduler's tick would
stand still meanwhile, and the next tick asks again anyway."""


class KubernetesClient:
    """A client for the pods of one namespace, and for the nodes beneath them."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self.namespace = namespace
        self._api, self._core, self._custom = api, client.CoreV1Api(api), client.CustomObjectsApi(api)
        self._access = client.AuthorizationV1Api(api)

    @classmethod
    def open(cls, manifest: Manifest | None = None, *, namespace: str = "", context: str = "") -> "KubernetesClient":
        """Return a client for the namespace of this pod's service account; outside of a cluster, by the person's
        kubeconfig.

        Args:
            manifest: Of a cluster, whose namespace is taken if a stack has declared it.
            namespace: In place of the context's.
            context: Of the kubeconfig; by default the current one.

        Raises:
            CloudError: if there is neither.
        """
        settings = client.Configuration()
        settings.retries = _RETRIES
        account = find_account(os.environ.get)
        if account is not None:
            _use_account(settings, account)
            return cls(client.ApiClient(settings), account.namespace())
        try:
            # The library's function that lists the contexts refuses a file without a current one, even if another one
            # is named.
            file = _read_kubeconfig()
            if file.config is None:
                raise config.ConfigException("there is no kubeconfig")
            loader = kube_config.KubeConfigLoader(
                file.config, active_context=context or None, config_persister=file.save_changes
            )
            loader.load_and_set(settings)
        except (config.ConfigException, OSError, TypeError, kube_config.yaml.YAMLError) as error:
            # The library lets its parser's errors through, and a TypeError for a file of another form.
            fix = "name a kubeconfig in KUBECONFIG; `kubectl config current-context` says which cluster it chooses"
            raise CloudError(f"no way to a Kubernetes cluster: {error}", Trouble.CREDENTIALS, fix) from error
        declared = declared_namespace(manifest) if manifest is not None else None
        chosen = namespace or declared or loader.current_context["context"].get("namespace") or "default"
        return cls(client.ApiClient(settings), chosen)

    def pods(self, selector: str) -> Document:
        """Return the list of the pods with these labels."""
        return _read(
            self._core.list_namespaced_pod(
                self.namespace, label_selector=selector, _preload_content=False, _request_timeout=_TIMEOUT
            )
        )

    def watch_pods(self, selector: str, version: str, span: timedelta) -> Iterator[Document]:
        """Yield each pod that changes after a version of the list, for `span` of real time, or until the watch is cut
        or the version is too old (status 410). The next list has what was missed."""
        changes = watch.Watch().stream(
            self._core.list_namespaced_pod,
            self.namespace,
            label_selector=selector,
            resource_version=version,
            timeout_seconds=int(span.total_seconds()),
            _request_timeout=(_CONNECT.total_seconds(), (span + _READ).total_seconds()),
        )
        try:
            for change in changes:
                if change is not None:  # an empty line, or one that was cut
                    yield change["raw_object"]
        except (client.ApiException, HTTPError) as error:
            if isinstance(error, client.ApiException) and not is_status(error, GONE):
                raise
            _log.info("the watch of pods ended early: %s", error)

    def pod(self, name: str) -> Document:
        """Return a pod."""
        return _read(
            self._core.read_namespaced_pod(name, self.namespace, _preload_content=False, _request_timeout=_TIMEOUT)
        )

    def create_pod(self, pod: Document) -> Document:
        """Create a pod."""
        return _read(
            self._core.create_namespaced_pod(self.namespace, pod, _preload_content=False, _request_timeout=_TIMEOUT)
        )

    def patch_pod(self, name: str, change: Document) -> Document:
        """Change a pod by a merge patch (RFC 7396)."""
        # The generated client sends a dictionary as a strategic merge, in which an empty list changes nothing.
        return _read(
            self._api.call_api(
                "/api/v1/namespaces/{namespace}/pods/{name}",
                "PATCH",
                path_params={"namespace": self.namespace, "name": name},
                header_params={"Content-Type": "application/merge-patch+json", "Accept": "application/json"},
                body=change,
                auth_settings=["BearerToken"],
                _return_http_data_only=True,
                _preload_content=False,
                _request_timeout=_TIMEOUT,
            )
        )

    def delete_pod(self, name: str, *, version: str | None = None) -> None:
        """Delete a pod, with its own grace period. `version`: only as long as it has not changed since."""
        options = {"preconditions": {"resourceVersion": version}} if version is not None else {}
        self._core.delete_namespaced_pod(
            name, self.namespace, body=options, _preload_content=False, _request_timeout=_TIMEOUT
        )

    def pod_template(self, name: str) -> Document:
        """Return a PodTemplate."""
        return _read(
            self._core.read_namespaced_pod_template(
                name, self.namespace, _preload_content=False, _request_timeout=_TIMEOUT
            )
        )

    def pod_events(self, uid: str) -> list[Document]:
        """Return the events about a pod. `uid`: of the pod, because events outlive it and its name."""
        answer = self._core.list_namespaced_event(
            self.namespace,
            field_selector=f"involvedObject.kind=Pod,involvedObject.uid={uid}",
            _preload_content=False,
            _request_timeout=_TIMEOUT,
        )
        return list(_read(answer)["items"])

    def node(self, name: str) -> Document:
        """Return a node."""
        return _read(self._core.read_node(name, _preload_content=False, _request_timeout=_TIMEOUT))

    def node_claim(self, name: str) -> Document:
        """Return a NodeClaim of Karpenter."""
        claim = self._custom.get_cluster_custom_object(*_CLAIMS, name, _request_timeout=_TIMEOUT)
        return dict(claim)

    def node_claims(self) -> list[Document]:
        """Return the NodeClaims of Karpenter."""
        claims = self._custom.list_cluster_custom_object(*_CLAIMS, _request_timeout=_TIMEOUT)
        return list(dict(claims)["items"])

    def delete_node_claim(self, name: str) -> None:
        """Delete a NodeClaim, whose machine Karpenter then drains and ends. One that is gone is skipped."""
        try:
            self._custom.delete_cluster_custom_object(*_CLAIMS, name, _request_timeout=_TIMEOUT)
        except client.ApiException as error:
            if not is_status(error, NOT_FOUND):
                raise

    def read(self, path: str, query: Mapping[str, str] | None = None) -> Document:
        """Return what a path of the API has."""
        return _read(
            self._api.call_api(
                path,
                "GET",
                query_params=list((query or {}).items()),
                header_params={"Accept": "application/json"},
                auth_settings=["BearerToken"],
                _return_http_data_only=True,
                _preload_content=False,
                _request_timeout=_TIMEOUT,
            )
        )

    def find(self, path: str) -> Document | None:
        """Return what a path of the API has; None if there is nothing."""
        try:
            return self.read(path)
        except client.ApiException as error:
            if not is_status(error, NOT_FOUND):
                raise
            return None

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return str(self._api.configuration.host)

    def may(self, verb: str, resource: str, group: str = "") -> bool:
        """Return whether the caller may do this: in the namespace, or in the cluster where the resource has none."""
        attributes = {"namespace": self.namespace, "verb": verb, "group": group, "resource": resource}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        answer = self._access.create_self_subject_access_review(
            {**review, "spec": {"resourceAttributes": attributes}}, _preload_content=False, _request_timeout=_TIMEOUT
        )
        return bool(_read(answer)["status"]["allowed"])

    def close(self) -> None:
        """Close the connections."""
        self._api.close()


_DEFAULT_KUBECONFIG = "~/.kube/config"  # the library's own default is the variable, even if that is empty


def read_server(context: str) -> str:
    """Return the address of the API server that a context of the kubeconfig leads to; empty if there is none. Nobody
    logs in for it."""
    try:
        file = _read_kubeconfig().config
        cluster = file["contexts"].get_with_name(context)["context"]["cluster"]
        return str(file["clusters"].get_with_name(cluster)["cluster"]["server"]).rstrip("/")
    except (config.ConfigException, OSError, TypeError, kube_config.yaml.YAMLError):
        return ""


def _read_kubeconfig() -> kube_config.KubeConfigMerger:
    """Return the files of the kubeconfig, merged. The library reads the variable once, when it is imported. An empty
    variable counts as unset, as for kubectl."""
    return kube_config.KubeConfigMerger(os.environ.get("KUBECONFIG") or _DEFAULT_KUBECONFIG)


def _use_account(settings: client.Configuration, account: ServiceAccount) -> None:
    """Set the way of a pod to its API server. The library's own loader reads the token once a minute, and a token that
    is replaced before its time is refused until then."""

    def read_token(settings: client.Configuration) -> None:
        try:
            token = account.token.read_text().strip()
        except OSError as error:
            _log.warning("the token of the service account cannot be read: %s", error)
            return
        if token:
            settings.api_key["BearerToken"] = f"Bearer {token}"

    settings.host, settings.ssl_ca_cert = account.server, str(account.certificate)
    settings.refresh_api_key_hook = read_token
    read_token(settings)  # the library asks the hook only where there is a token


def _read(answer: Any) -> Document:
    return dict(json.loads(answer.data))
