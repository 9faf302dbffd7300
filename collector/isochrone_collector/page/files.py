"""Files of the live page, read and compressed once, when the first visitor comes.

The files have a common folder whose name is a digest of their content, so that browsers keep them for ever and load the
new ones after an upgrade. Only the document itself is checked at each visit. The document is the same for every view:
the script reads the view from the address.
"""

import gzip
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath

DOCUMENT = "index.html"
FOLDER = "/page"

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Content-Security-Policy of every file: nothing of another address is loaded, and no script or style is inline."""

_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Vary": "Accept-Encoding",
}
_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FOR_EVER = "public, max-age=31536000, immutable"
_CHECKED = "no-cache"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFile:
    """A file as it is sent: its bytes, the same with gzip, and the headers of both, in lower case."""

    content: bytes
    compressed: bytes
    etag: str
    headers: Mapping[str, str]


@cache
def read_files() -> Mapping[str, PageFile]:
    """Return the files by their paths on the server; the document has the path of `DOCUMENT`. They are read at the
    first call, because a collector without visitors needs none.
    """
    contents = dict(_contents(resources.files(__package__) / "static", PurePosixPath()))
    document = contents.pop(DOCUMENT)
    folder = f"{FOLDER}/{_digest(*contents, *contents.values())}"
    found = {f"{folder}/{name}": _file(name, content, _FOR_EVER) for name, content in contents.items()}
    return found | {DOCUMENT: _file(DOCUMENT, _linked(document, folder, contents), _CHECKED)}


def _contents(folder: Traversable, place: PurePosixPath) -> Iterator[tuple[str, bytes]]:
    """Yield the paths and contents of the files in a folder and in those below it, sorted."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _contents(entry, place / entry.name)
        elif PurePosixPath(entry.name).suffix in _MEDIA_TYPES:
            yield str(place / entry.name), entry.read_bytes()


def _linked(document: bytes, folder: str, names: Mapping[str, bytes]) -> bytes:
    """Return the document with the name of the folder, and with links by which all modules are loaded at once."""
    links = (f'<link rel="modulepreload" href="{folder}/{name}">' for name in names if name.endswith(".js"))
    text = document.decode().replace("<!-- modules -->", "\n".join(links))
    return text.replace("FOLDER", folder).encode()


def _file(name: str, content: bytes, cache_control: str) -> PageFile:
    headers = {"Content-Type": _MEDIA_TYPES[PurePosixPath(name).suffix], "Cache-Control": cache_control, **_HEADERS}
    return PageFile(content=content, compressed=gzip.compress(content, mtime=0), etag=_digest(content), headers=headers)


def _digest(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode() if isinstance(part, str) else part
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.hexdigest()[:20]
