"""An OpenID Connect provider for tests: it logs one user in without asking, by the code flow."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

CLIENT, CLIENT_SECRET = "isochrone", "secret-of-a-client"


@dataclass(slots=True)
class Provider:
    """The provider at `issuer`, whose user has the address `email`."""

    issuer: str
    email: str = "ida@example.org"
    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65_537, 2_048))
    nonces: dict[str, str] = field(default_factory=dict)

    def answer(self, path: str, form: dict[str, str]) -> dict[str, Any]:
        """Return the document at a path."""
        if path == "/token":
            return {
                "access_token": "a",
                "token_type": "Bearer",
                "id_token": self._id_token(self.nonces.pop(form["code"])),
            }
        if path == "/jwks":
            numbers = self.key.public_key().public_numbers()
            return {"keys": [{"kty": "RSA", "kid": "1", "n": _text(numbers.n), "e": _text(numbers.e)}]}
        ends = {f"{name}_endpoint": f"{self.issuer}/{name}" for name in ("authorization", "token")}
        return {
            "issuer": self.issuer,
            "jwks_uri": f"{self.issuer}/jwks",
            "response_types_supported": ["code"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic"],
            **ends,
        }

    def _id_token(self, nonce: str) -> str:
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT, "sub": "1", "iat": now, "exp": now + 600, "nonce": nonce}
        parts = [{"alg": "RS256", "kid": "1"}, {**claims, "email": self.email}]
        signed = ".".join(_text(json.dumps(part).encode()) for part in parts)
        return f"{signed}.{_text(self.key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def _text(value: bytes | int) -> str:
    raw = value.to_bytes((value.bit_length() + 7) // 8, "big") if isinstance(value, int) else value
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


@contextmanager
def provider() -> Iterator[Provider]:
    """Serve a provider on loopback for the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            asked = {name: value for name, (value, *_) in parse_qs(url.query).items()}
            if url.path != "/authorization":
                return self._send(found.answer(url.path, {}))
            assert asked["client_id"] == CLIENT
            code = str(len(found.nonces))
            found.nonces[code] = asked["nonce"]
            self.send_response(302)
            self.send_header(
                "Location", f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"
            )
            self.end_headers()
            return None

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            basic = base64.b64encode(f"{CLIENT}:{CLIENT_SECRET}".encode()).decode()
            assert self.headers["Authorization"] == f"Basic {basic}"
            self._send(found.answer(self.path, {name: value for name, (value, *_) in parse_qs(body).items()}))

        def _send(self, document: dict[str, Any]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def log_message(self, *_parts: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Provider(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
