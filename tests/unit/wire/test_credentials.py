"""Join tokens and credentials survive copying, and other texts are refused."""

import pytest

from isochrone_common.credentials import (
    Credential,
    JoinToken,
    format_fingerprint,
    hash_secret,
    parse_credential,
    parse_join_token,
)

SECRET = bytes(range(32))
FINGERPRINT = bytes(reversed(range(32)))


@pytest.mark.parametrize("fingerprint", [b"", FINGERPRINT])
def test_a_join_token_survives_being_copied(fingerprint: bytes) -> None:
    """The printed token is parsed back unchanged, also with surrounding whitespace."""
    token = JoinToken(id=2**63 - 1, secret=SECRET, fingerprint=fingerprint)
    assert parse_join_token(f"  {token}\n") == token


def test_a_credential_survives_being_copied() -> None:
    """The printed credential is parsed back unchanged."""
    credential = Credential(id=1, secret=SECRET)
    assert parse_credential(str(credential)) == credential


@pytest.mark.parametrize(
    "text",
    [
        "",
        "isochrone-key-",
        "isochrone-key-AAAA",
        "isochrone-key-ä",
        "Bearer x",
        str(JoinToken(id=1, secret=SECRET, fingerprint=b"")),
    ],
)
def test_what_is_no_credential_is_refused_without_repeating_it(text: str) -> None:
    """An error message never contains a mistyped secret."""
    with pytest.raises(ValueError, match=r"credential") as refused:
        parse_credential(text)
    assert len(text) < 20 or text not in str(refused.value)


@pytest.mark.parametrize("cut", [1, 10, 40])
def test_a_join_token_that_was_cut_is_refused(cut: int) -> None:
    """A truncated token is refused."""
    whole = str(JoinToken(id=7, secret=SECRET, fingerprint=FINGERPRINT))
    with pytest.raises(ValueError, match="join token"):
        parse_join_token(whole[:-cut])


def test_no_repr_shows_a_secret() -> None:
    """`repr` contains no secret, because logs print values."""
    shown = repr(Credential(id=1, secret=SECRET)) + repr(JoinToken(id=1, secret=SECRET, fingerprint=FINGERPRINT))
    assert repr(SECRET) not in shown
    assert "secret" not in shown


def test_hashes_and_fingerprints_are_the_usual_ones() -> None:
    """Hashes are plain SHA-256, and fingerprints have the format of openssl."""
    assert hash_secret(b"abc").hex() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert format_fingerprint(b"\x0a\xff") == "SHA256:0A:FF"
