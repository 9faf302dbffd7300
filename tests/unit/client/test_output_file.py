"""Standard output as the file of an export."""

import sys
from contextlib import suppress
from pathlib import Path

import pytest

from isochrone_client.errors import FileError
from isochrone_client.output_file import STDOUT, open_output


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_a_full_standard_output_is_an_error(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An export that standard output does not accept fails with a sentence, whether it fits the buffer or not."""
    stdout = Path("/dev/full").open("w")  # noqa: SIM115  # closing it fails
    monkeypatch.setattr(sys, "stdout", stdout)
    with (
        pytest.raises(FileError, match="cannot write to standard output: No space left on device"),
        open_output(STDOUT, force=False) as file,
    ):
        file.write(b"x" * size)
    with suppress(OSError):
        stdout.close()
