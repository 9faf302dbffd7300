"""Requests: JSON, and texts that are cut."""

from isochrone_collector.alerts.formats import HttpRequest, cut, encoded


def test_a_cut_text_ends_with_an_ellipsis() -> None:
    """A text is at most as long as allowed."""
    assert [cut("abcd", most) for most in (5, 4, 3)] == ["abcd", "abcd", "ab…"]


def test_json_is_compact_text() -> None:
    """Other characters than ASCII stay as they are."""
    assert encoded({"a": [1, "é"]}) == '{"a":[1,"é"]}'.encode()


def test_no_secret_is_in_the_repr() -> None:
    """Address, headers and body may contain secrets."""
    assert repr(HttpRequest(url="https://token", body=b"token", headers={"a": "token"})) == "HttpRequest()"
