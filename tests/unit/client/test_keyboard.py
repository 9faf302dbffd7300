"""Keys from the bytes of a terminal."""

import pytest

from isochrone_client.screen import KeyDecoder


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"q", ["q"]),
        (b"sm", ["s", "m"]),
        (b"\x1b[A", ["up"]),
        (b"\x1bOB", ["down"]),
        (b"\x1b[5~j", ["page up", "j"]),
        (b"\x1b", ["escape"]),
        (b"\r", ["enter"]),
        (b"\x7f\x08", ["backspace", "backspace"]),
        ("é/".encode(), ["é", "/"]),
        # A key with a modifier, an unknown one, one that has no name, and a byte that is no text.
        (b"\x1b[1;5Cx", ["x"]),
        (b"\x1b[200~", []),
        (b"\x01", []),
        (b"\xffq", ["q"]),
        (b"\x1b[", []),
    ],
)
def test_keys_have_names(data: bytes, keys: list[str]) -> None:
    """Characters are themselves, and sequences are keys with names; unknown ones are ignored."""
    assert list(KeyDecoder().keys(data)) == keys


def test_a_character_may_be_divided() -> None:
    """A character that arrives in two reads is one key."""
    decoder, data = KeyDecoder(), "é".encode()
    assert [list(decoder.keys(data[:1])), list(decoder.keys(data[1:]))] == [[], ["é"]]
