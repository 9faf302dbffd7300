"""Hostile or broken HTTP clients get a 4xx status or a closed connection."""

import asyncio

import pytest

from fixtures.web import Web, shares_web
from isochrone_collector.http_api import listener
from isochrone_wire.model import SECOND_US

US = "/v1/routes/us-east-2"


async def said(web: Web, request: bytes) -> bytes:
    """Return the response to bytes, until the connection is closed or silent."""
    reader, writer = await asyncio.open_connection(web.address.host, web.address.port)
    try:
        writer.write(request)
        return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        return error.partial if isinstance(error, asyncio.IncompleteReadError) else b""
    finally:
        writer.close()


@shares_web
@pytest.mark.parametrize(
    "target",
    [
        "/v1/routes/%zz",
        "/v1/routes/%",
        "/v1/routes/%ff%fe",
        "/v1/routes/us%0d%0aSet-Cookie:%20a=b",
        "/v1/routes/us%00east",
        f"{US}?route=%zz",
        f"{US}?route=%ff",
        f"{US}?route=a%0d%0aX-Evil:%201",
        f"{US}?after=99999999999999999999",
        f"{US}?after=1e3",
        f"{US}?after=%D9%A1",
        f"{US}?wait=999999999999999999999d",
        f"{US}?" + "&".join(["route=a"] * 500),
        "/v1/diff?window=0s",
        "/v1/diff?window=999999999999d",
        "/v1/diff?from=0001-01-01T00:00:00Z&until=9999-12-31T23:59:59Z",
        "/v1/diff?from=2026-11-21T08:00:00",
        "/v1/diff?until=2026-11-21T08:00:00Z",
        "/v1/explain/a/b?generation=-1",
    ],
)
async def test_malformed_requests_are_bad_requests(shared_web: Web, target: str) -> None:
    """Broken escapes, other encodings, control characters and numbers out of range are 400, in a problem document."""
    answer = await said(shared_web, f"GET {target} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert b"application/problem+json" in answer
    assert b"Set-Cookie" not in answer
    assert b"X-Evil" not in answer


@shares_web
@pytest.mark.parametrize(
    "target",
    [
        "/v1/routes/..%2f..%2f..%2fetc%2fpasswd",
        "/v1/routes/../../etc/passwd",
        "/v1/routes/' OR 1=1 --".replace(" ", "%20"),
        "/v1/routes/" + "a" * 8_000,
        "/v1/routes/%E2%80%AEus",
        "/v1/routes/us-east-2%20",
        "/v1/routes/US-EAST-2",
        "//v1/routes",
        "/v1/routes/us-east-2/",
    ],
)
async def test_strange_names_are_unknown_names(shared_web: Web, target: str) -> None:
    """A region is only compared with the known names, whatever it looks like."""
    answer = await said(shared_web, f"GET {target} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
    assert answer.split(b" ")[1] in (b"404", b"400"), answer


@shares_web
@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /v1/routes?" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /v1/routes HTTP/1.1\r\nHost: h\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET /v1/routes HTTP/1.1\r\nHost: h\r\n" + b"".join(b"X-%d: 1\r\n" % n for n in range(20_000)) + b"\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /v1/routes HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc",
        b"\x00" * 1_000,
    ],
)
async def test_what_is_no_request_is_refused(shared_web: Web, request_bytes: bytes) -> None:
    """Heads beyond 16 kB, other protocols and contradictions get 400 or are cut off, what can be read is read."""
    answer = await said(shared_web, request_bytes)
    assert answer == b"" or answer.split(b" ")[1] in (b"400", b"404", b"200"), answer
    assert (await shared_web.get("/healthz")).status_code == 200


async def test_an_upgrade_is_ignored(web: Web) -> None:
    """A request for a web socket gets the document."""
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n"
    answer = await said(web, f"GET {US} HTTP/1.1\r\nHost: h\r\n{upgrade}\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 200 ")


async def test_idle_connections_are_closed(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection without a whole request ends after a while, also when it trickles, and one that waits stays."""
    monkeypatch.setattr(listener, "IDLE_US", SECOND_US // 2)
    async with web.watch(f"{US}/watch"):
        silent, silent_writer = await asyncio.open_connection(web.address.host, web.address.port)
        trickling, trickle = await asyncio.open_connection(web.address.host, web.address.port)
        trickle.write(b"GET /v1/routes HTTP/1.1\r\n")
        for _ in range(40):
            if trickling.at_eof():
                break
            trickle.write(b"X: y\r\n")
            await asyncio.sleep(0.1)
        for reader in (silent, trickling):
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await asyncio.wait_for(reader.readexactly(1), 10)
        silent_writer.close()
        trickle.close()
        assert web.publisher.watchers == 1


async def test_there_is_no_cors(web: Web) -> None:
    """Pages of other origins may not read responses."""
    answer = await web.get(US, origin="https://evil.example")
    assert not [name for name in answer.headers if name.startswith("access-control-")]
    assert (await web.client.options(US)).status_code == 405
