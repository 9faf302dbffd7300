"""Entity tags of conditional requests."""

import pytest

from isochrone_collector.http_api.responses import is_current, quoted

TAG = "g48-9f3ac1d20001"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (None, False),
        ("", False),
        ("*", True),
        (quoted(TAG), True),
        (f"  {quoted(TAG)}  ", True),
        (f"W/{quoted(TAG)}", True),
        (f'"other",{quoted(TAG)}', True),
        (f'W/"other"  ,\t W/{quoted(TAG)}', True),
        (f'"a,{TAG}", "b"', False),
        (TAG, False),
        (f"w/{quoted(TAG)}", False),
        (f"{quoted(TAG)},", False),
        (f"{quoted(TAG)} {quoted(TAG)}", False),
        (f"*, {quoted(TAG)}", False),
        (f'"{TAG}', False),
        (f'" {TAG}"', False),
        ('"' * 20_000, False),
        ('"a",' * 5_000, False),
        ('W/"' * 5_000, False),
        (quoted(TAG)[:-1] + "\r\n" + '"', False),
    ],
)
def test_only_a_tag_that_is_named_is_current(said: str | None, expected: bool) -> None:  # noqa: FBT001  # a case
    """A tag matches strong, weak, in a list or as `*`; a malformed header matches nothing."""
    assert is_current(said, TAG) is expected
