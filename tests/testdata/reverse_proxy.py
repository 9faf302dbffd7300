"""A reverse proxy that logs users in: a program for tests.

A request with the cookie `proxy_session=USER` goes to the collector with the user in a header and the proxy's secret;
every other request gets 403. Headers of these names that the client sends are dropped, so that it cannot choose a user.
"""

import sys
from collections.abc import AsyncIterator

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

COOKIE = "proxy_session"
USER_HEADER = "X-Forwarded-User"
SECRET_HEADER = "X-Isochrone-Proxy-Secret"
_METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE"]
_DROPPED = {USER_HEADER.lower(), SECRET_HEADER.lower(), "host", "connection", "content-length", "transfer-encoding"}


def create_proxy(upstream: str, secret: str) -> Starlette:
    client = httpx.AsyncClient(base_url=upstream, trust_env=False, timeout=60)

    async def forward(request: Request) -> Response:
        user = request.cookies.get(COOKIE)
        if not user:
            return PlainTextResponse("log in first", status_code=403)
        headers = [(name, value) for name, value in request.headers.items() if name not in _DROPPED]
        headers += [(USER_HEADER, user), (SECRET_HEADER, secret)]
        path = request.scope["raw_path"].decode("ascii")
        query = request.scope["query_string"].decode("ascii")
        url = f"{upstream}{path}{'?' if query else ''}{query}"
        sent = client.build_request(request.method, url, headers=headers, content=await request.body())
        answer = await client.send(sent, stream=True)

        async def body() -> AsyncIterator[bytes]:
            async for part in answer.aiter_raw():
                yield part

        kept = {name: value for name, value in answer.headers.items() if name not in _DROPPED}
        return StreamingResponse(body(), answer.status_code, kept, background=BackgroundTask(answer.aclose))

    return Starlette(routes=[Route("/{path:path}", forward, methods=_METHODS)])


if __name__ == "__main__":
    uvicorn.run(create_proxy(sys.argv[1], sys.argv[3]), port=int(sys.argv[2]), log_level="error", http="h11")
