"""The API server of a Kubernetes cluster: the few calls that following routes takes."""

import json
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from isochrone_client.errors import ClusterError
from isochrone_client.kubernetes.route_objects import ROUTE_LABEL, Kind, Object

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
MANAGER = "isochrone"
_TIMEOUT_SECONDS = 10.0
# The server ends a watch after this time, and sends nothing while nothing changes.
_WATCH_SECONDS = 240
_NOT_FOUND, _CONFLICT = 404, 409
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"


class ConflictError(ClusterError):
    """The object has changed since it was read, or exists already."""


@dataclass(slots=True)
class Cluster:
    """The API server at the URL `server`, and a namespace there. All calls raise `ClusterError`.

    `account` is the folder of a service account. Its token is read for each call, because it is replaced every hour.
    """

    server: str
    namespace: str
    account: Path | None = None
    _http: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        trust = ssl.create_default_context(cafile=self.account / "ca.crt") if self.account else True
        self._http = httpx.Client(base_url=self.server, verify=trust, timeout=_TIMEOUT_SECONDS, trust_env=False)

    def list(self, kind: Kind) -> list[Object]:
        """The objects of a kind with a route; none if the cluster does not have the kind."""
        found = self._call("GET", self._path(kind), params={"labelSelector": ROUTE_LABEL})
        return list(found["items"]) if found is not None else []

    def watch(self, kind: Kind) -> Iterator[None]:
        """Yield after each change of an object with a route, and for each at the start, until the server ends it."""
        params = {"labelSelector": ROUTE_LABEL, "watch": "1", "timeoutSeconds": str(_WATCH_SECONDS)}
        timeout = httpx.Timeout(_TIMEOUT_SECONDS, read=_WATCH_SECONDS + _TIMEOUT_SECONDS)
        try:
            with self._http.stream(
                "GET", self._path(kind), params=params, headers=self._headers(), timeout=timeout
            ) as answer:
                if answer.status_code != httpx.codes.OK:
                    answer.read()
                    _raise(answer)
                for _ in answer.iter_lines():
                    yield
        except httpx.HTTPError as error:
            raise _unreachable(self.server, error) from error

    def apply(self, kind: Kind, patch: Object) -> None:
        """Apply a patch on the server, as the owner of its fields. Raises `ConflictError` for another version."""
        path = f"{self._path(kind)}/{patch['metadata']['name']}"
        params = {"fieldManager": MANAGER, "force": "true", "fieldValidation": "Strict"}
        headers = {"content-type": "application/apply-patch+yaml"}
        if self._call("PATCH", path, params=params, headers=headers, content=json.dumps(patch)) is None:
            raise ConflictError(f"{patch['kind']} {patch['metadata']['name']} was deleted")

    def read_lease(self, name: str) -> Object | None:
        """The lease of that name; `None` if there is none."""
        return self._call("GET", f"{_LEASES.format(self.namespace)}/{name}")

    def write_lease(self, name: str, before: Object | None, spec: Mapping[str, Any]) -> None:
        """Create the lease, or replace the one read `before`. Raises `ConflictError` if that has changed."""
        metadata = before["metadata"] if before else {"name": name, "namespace": self.namespace}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": dict(spec)}
        path = _LEASES.format(self.namespace)
        method, path = ("PUT", f"{path}/{name}") if before else ("POST", path)
        if self._call(method, path, params={"fieldManager": MANAGER}, content=json.dumps(lease)) is None:
            raise ConflictError(f"the lease {name} was deleted")

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def _path(self, kind: Kind) -> str:
        return f"/apis/{kind.api_version}/namespaces/{self.namespace}/{kind.plural}"

    def _headers(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        headers = {"accept": "application/json", "content-type": "application/json", **(more or {})}
        if self.account is None:
            return headers
        try:
            return headers | {"authorization": f"Bearer {(self.account / 'token').read_text().strip()}"}
        except OSError as error:
            raise ClusterError(f"cannot read the token of the service account: {error.strerror}") from error

    def _call(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        content: str | None = None,
    ) -> Object | None:
        """The document of an answer; `None` for an unknown object or kind."""
        try:
            answer = self._http.request(method, path, headers=self._headers(headers), params=params, content=content)
        except httpx.HTTPError as error:
            raise _unreachable(self.server, error) from error
        if answer.status_code == _NOT_FOUND:
            return None
        if answer.is_error:
            _raise(answer)
        document: Object = answer.json()
        return document


def _raise(answer: httpx.Response) -> None:
    kind = ConflictError if answer.status_code == _CONFLICT else ClusterError
    hint = "see the Role in deploy/kubernetes/routes.yaml" if answer.status_code == httpx.codes.FORBIDDEN else ""
    try:
        message = str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        message = answer.reason_phrase
    raise kind(f"the API server refused: {answer.status_code} {message}", hint=hint)


def _unreachable(server: str, error: httpx.HTTPError) -> ClusterError:
    return ClusterError(f"no API server answers at {server}: {str(error) or type(error).__name__}")
