"""Secrets out of sentences: a provider may quote the key it refused, whole or in part; what is kept never does."""

from itertools import groupby

MASK = "***"
# A piece this long tells more of a key than a family's prefix does.
RUN_CHARS = 8


def redact(text: str, secret: str) -> str:
    """`text` with every run of at least `RUN_CHARS` characters that `secret` also holds masked; a shorter secret is
    masked where it stands whole.
    """
    length = min(len(secret), RUN_CHARS)
    if not length:
        return text
    pieces = {secret[at : at + length] for at in range(len(secret) - length + 1)}
    hidden = bytearray(len(text))
    for at in range(len(text) - length + 1):
        if text[at : at + length] in pieces:
            hidden[at : at + length] = b"\1" * length
    runs = groupby(zip(text, hidden, strict=True), key=lambda marked: marked[1])
    return "".join(MASK if secret_run else "".join(char for char, _ in run) for secret_run, run in runs)


def printable(text: str) -> str:
    """`text` with a question mark for whatever cannot be shown or stored: control characters, halves of code points."""
    return "".join(char if char.isprintable() else "?" for char in text)
