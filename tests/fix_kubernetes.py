"""Fixture for a Kubernetes API server: real HTTP with the rules that following routes depends on.

It is no kube-apiserver, of which no package exists. It keeps these rules: strict schemas (an unknown field is refused),
defaults, optimistic concurrency by `resourceVersion`, label selectors, watches, and server-side apply, in which a list
without keys is replaced and owned as a whole. The schemas have the fields and limits of the published APIs that occur
in routes of LLM gateways.
"""

import json
import threading
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from jsonschema import Draft202012Validator

_POLL_SECONDS = 0.02
NAMESPACE = "gateway"


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _list(items: Any, most: int) -> dict[str, Any]:
    return {"type": "array", "items": items, "maxItems": most}


NAME = {"type": "string", "minLength": 1, "maxLength": 253}
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
MATCHES = _list({"type": "object"}, 64)
PARENTS = _list(_object(["name"], name=NAME, namespace=NAME, group=NAME, kind=NAME, sectionName=NAME), 32)
WEIGHT = {"type": "integer", "minimum": 0, "maximum": 1_000_000}
HTTP_BACKEND = _object(
    ["name"],
    name=NAME,
    namespace=NAME,
    group={"type": "string"},
    kind=NAME,
    port={"type": "integer", "minimum": 1, "maximum": 65_535},
    weight=WEIGHT,
    filters=_list({"type": "object"}, 16),
)
AI_BACKEND = _object(
    ["name"],
    name=NAME,
    namespace=NAME,
    modelNameOverride={"type": "string"},
    weight={"type": "integer", "minimum": 0},
    priority={"type": "integer", "minimum": 0},
)
METADATA = _object(
    ["name", "namespace"],
    name=NAME,
    namespace=NAME,
    labels=TEXTS,
    annotations=TEXTS,
    resourceVersion={"type": "string", "pattern": "^[0-9]+$"},
    managedFields={"type": "array"},
)
MICRO_TIME = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$"}
SPECS = {
    "httproutes": _object(
        [],
        parentRefs=PARENTS,
        hostnames=_list(NAME, 16),
        rules=_list(
            _object(
                [],
                name=NAME,
                matches=MATCHES,
                filters=_list({"type": "object"}, 16),
                backendRefs=_list(HTTP_BACKEND, 16),
                timeouts={"type": "object"},
            ),
            16,
        ),
    ),
    "aigatewayroutes": _object(
        ["rules"],
        parentRefs=PARENTS,
        rules=_list(_object([], matches=MATCHES, backendRefs=_list(AI_BACKEND, 128), timeouts={"type": "object"}), 128),
        llmRequestCosts=_list({"type": "object"}, 36),
    ),
    "leases": _object(
        [],
        holderIdentity={"type": "string"},
        leaseDurationSeconds={"type": "integer", "minimum": 1},
        acquireTime=MICRO_TIME,
        renewTime=MICRO_TIME,
        leaseTransitions={"type": "integer", "minimum": 0},
    ),
}
API_OF = {
    "httproutes": ("gateway.networking.k8s.io/v1", "HTTPRoute"),
    "aigatewayroutes": ("aigateway.envoyproxy.io/v1alpha1", "AIGatewayRoute"),
    "leases": ("coordination.k8s.io/v1", "Lease"),
}
DEFAULTS = {"httproutes": {"weight": 1}, "aigatewayroutes": {"weight": 1, "priority": 0}, "leases": {}}


class Refusal(Exception):  # noqa: N818  # an answer
    """An answer of the API server that is an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(slots=True)
class ApiServer:
    """The objects by plural and name, and every change, oldest first. `installed` are the kinds that it has.

    With a `token`, each request needs it. `writes` are the accepted writes as (method, plural, name, body), `verbs` the
    permissions that the requests took, by plural.
    """

    installed: set[str] = field(default_factory=lambda: set(API_OF))
    token: str = ""
    url: str = ""
    is_away: bool = False
    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    writes: list[tuple[str, str, str, dict[str, Any]]] = field(default_factory=list)
    verbs: dict[str, set[str]] = field(default_factory=dict)
    _changes: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    _version: int = 0
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def put(self, plural: str, name: str, *, manager: str = "kubectl", **parts: Any) -> dict[str, Any]:
        """Create or replace an object as a user does; `spec`, and `labels` and `annotations` of its metadata."""
        with self._lock:
            api_version, kind = API_OF[plural]
            metadata = {"name": name, "namespace": NAMESPACE}
            metadata |= {part: parts[part] for part in ("labels", "annotations") if part in parts}
            document = {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": parts["spec"]}
            return self._store(plural, document, manager, {f"spec.{name}" for name in parts["spec"]})

    def get(self, plural: str, name: str) -> dict[str, Any]:
        """A copy of an object."""
        with self._lock:
            return deepcopy(self.objects[plural, name])

    def owner(self, plural: str, name: str, path: str) -> list[str]:
        """The managers of a field."""
        managed = self.get(plural, name)["metadata"]["managedFields"]
        return [one["manager"] for one in managed if path in one["paths"]]

    def patched(self, plural: str) -> list[dict[str, Any]]:
        """The bodies of the accepted patches of a kind."""
        return [body for method, kind, _, body in self.writes if (method, kind) == ("PATCH", plural)]

    def admit(self, authorization: str | None) -> None:
        """Raises `Refusal` while the server is away, and for another token."""
        if self.is_away:
            raise Refusal(503, "the server is shutting down")
        if self.token and authorization != f"Bearer {self.token}":
            raise Refusal(401, "Unauthorized")

    def answer(self, method: str, path: str, query: Mapping[str, str], kind: str, body: Any) -> dict[str, Any]:
        """The document of an answer. Raises `Refusal`."""
        plural, name = _place(path)
        if plural not in self.installed:
            raise Refusal(404, "the server could not find the requested resource")
        with self._lock:
            self.verbs.setdefault(plural, set()).add(_verb(method, name, query))
            if method == "GET":
                return self._read(plural, name, query)
            handled = {"POST": self._create, "PUT": self._replace, "PATCH": self._apply}[method](
                plural, name, query, kind, body
            )
            self.writes.append((method, plural, body["metadata"]["name"], body))
            return handled

    def events(self, plural: str, after: int) -> tuple[list[dict[str, Any]], int]:
        """The changes of objects of a kind that have a route, after the first `after` changes of all."""
        with self._lock:
            news = [one for of, one in self._changes[after:] if of == plural and _is_selected(one)]
            return news, len(self._changes)

    def _read(self, plural: str, name: str, query: Mapping[str, str]) -> dict[str, Any]:
        if name:
            if (plural, name) not in self.objects:
                raise Refusal(404, f'{plural} "{name}" not found')
            return deepcopy(self.objects[plural, name])
        found = [one for (of, _), one in self.objects.items() if of == plural]
        if query.get("labelSelector"):
            found = [one for one in found if _is_selected(one)]
        return {"kind": "List", "metadata": {"resourceVersion": str(self._version)}, "items": deepcopy(found)}

    def _create(self, plural: str, _name: str, query: Mapping[str, str], _kind: str, body: Any) -> dict[str, Any]:
        if (plural, body["metadata"]["name"]) in self.objects:
            raise Refusal(409, "already exists")
        return self._store(plural, body, query["fieldManager"], {f"spec.{part}" for part in body["spec"]})

    def _replace(self, plural: str, name: str, query: Mapping[str, str], _kind: str, body: Any) -> dict[str, Any]:
        self._require_version(plural, name, body)
        return self._store(plural, body, query["fieldManager"], {f"spec.{part}" for part in body["spec"]})

    def _apply(self, plural: str, name: str, query: Mapping[str, str], kind: str, body: Any) -> dict[str, Any]:
        if kind != "application/apply-patch+yaml" or not query.get("fieldManager"):
            raise Refusal(415, "server-side apply takes its own content type and a field manager")
        live = self._require_version(plural, name, body)
        manager = query["fieldManager"]
        paths = {f"spec.{part}" for part in body["spec"]}
        for path in paths:
            others = set(self.owner(plural, name, path)) - {manager}
            if others and query.get("force") != "true":
                raise Refusal(409, f"conflict with {others}: {path}")
        merged = deepcopy(live)
        merged["spec"] |= body["spec"]
        merged["metadata"].setdefault("annotations", {}).update(body["metadata"].get("annotations", {}))
        return self._store(plural, merged, manager, paths)

    def _require_version(self, plural: str, name: str, body: Any) -> dict[str, Any]:
        live = self.objects.get((plural, name))
        if live is None:
            raise Refusal(404, f'{plural} "{name}" not found')
        version = body["metadata"].get("resourceVersion")
        if version is not None and version != live["metadata"]["resourceVersion"]:
            raise Refusal(409, "the object has been modified; please apply your changes to the latest version")
        return live

    def _store(self, plural: str, document: dict[str, Any], manager: str, paths: set[str]) -> dict[str, Any]:
        document = deepcopy(document)
        _validate(plural, document)
        name = document["metadata"]["name"]
        for rule in document["spec"].get("rules", []):
            for backend in rule.get("backendRefs", []):
                for part, value in DEFAULTS[plural].items():
                    backend.setdefault(part, value)
        before = self.objects.get((plural, name), {"metadata": {}})["metadata"].get("managedFields", [])
        others = [{**one, "paths": sorted(set(one["paths"]) - paths)} for one in before if one["manager"] != manager]
        self._version += 1
        document["metadata"]["managedFields"] = [*others, {"manager": manager, "paths": sorted(paths)}]
        document["metadata"]["resourceVersion"] = str(self._version)
        self.objects[plural, name] = document
        self._changes.append((plural, deepcopy(document)))
        return deepcopy(document)


def _validate(plural: str, document: dict[str, Any]) -> None:
    api_version, kind = API_OF[plural]
    schema = _object(
        ["apiVersion", "kind", "metadata", "spec"],
        apiVersion={"const": api_version},
        kind={"const": kind},
        metadata=METADATA,
        spec=SPECS[plural],
    )
    for error in Draft202012Validator(schema).iter_errors(document):
        raise Refusal(422, f"{error.json_path}: {error.message}")


def _verb(method: str, name: str, query: Mapping[str, str]) -> str:
    reading = "watch" if query.get("watch") else "get" if name else "list"
    return {"GET": reading, "POST": "create", "PUT": "update", "PATCH": "patch"}[method]


def _is_selected(document: Mapping[str, Any]) -> bool:
    return "isochrone/route" in document["metadata"].get("labels", {})


def _place(path: str) -> tuple[str, str]:
    _, _, group, version, _, namespace, plural, *name = path.split("/")
    if namespace != NAMESPACE or API_OF.get(plural, ("",))[0] != f"{group}/{version}":
        raise Refusal(404, "the server could not find the requested resource")
    return plural, name[0] if name else ""


class _Handler(BaseHTTPRequestHandler):
    api: ApiServer

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._handle("GET")

    def do_POST(self) -> None:
        self._handle("POST")

    def do_PUT(self) -> None:
        self._handle("PUT")

    def do_PATCH(self) -> None:
        self._handle("PATCH")

    def log_message(self, *_arguments: Any) -> None:
        """Log nothing."""

    def _handle(self, method: str) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        content = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            self.api.admit(self.headers.get("authorization"))
            body = json.loads(content) if content else None
            answer = self.api.answer(method, parts.path, query, self.headers.get("content-type", ""), body)
        except Refusal as refusal:
            self._send(refusal.code, {"kind": "Status", "code": refusal.code, "message": str(refusal)})
            return
        if query.get("watch"):
            self._stream(_place(parts.path)[0])
        else:
            self._send(200, answer)

    def _send(self, code: int, document: dict[str, Any]) -> None:
        content = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, plural: str) -> None:
        self.send_response(200)
        self.send_header("connection", "close")
        self.end_headers()
        after = 0
        try:
            while not self.api.is_away:
                news, after = self.api.events(plural, after)
                for one in news:
                    self.wfile.write(json.dumps({"type": "MODIFIED", "object": one}).encode() + b"\n")
                self.wfile.flush()
                threading.Event().wait(_POLL_SECONDS)
        except OSError:
            return


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_arguments: Any) -> None:
        """Print nothing about a client that was killed."""


@pytest.fixture
def api_server() -> Iterator[ApiServer]:
    """An API server on loopback, at `url`."""
    api = ApiServer()
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"api": api}))
    api.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield api
    api.is_away = True
    server.shutdown()
    server.server_close()
    thread.join()
