"""Exports: the columns are those of the JSON document, and errors name missing packages and existing files."""

import io
import os
import sys
import tty
from contextlib import suppress
from pathlib import Path

import pytest

from fixtures.fake_collector import SAMPLES, WINDOW
from isochrone_client.errors import FileError, MissingExtraError
from isochrone_client.output_file import STDOUT, open_output
from isochrone_client.pages import samples
from isochrone_client.sample_export import FORMATS, columns
from isochrone_client.terminal import Output, render_options


def test_columns_are_those_of_the_document() -> None:
    """A file has the names of `--output json` in the same order, with the same values."""
    page = samples.page(SAMPLES[:1], window=WINDOW, now_at=0)
    record = page.record(page.rows[0])
    assert [column.name for column in columns()] == list(record)
    for column in columns():
        if not column.name.endswith("_at"):
            assert column.values(page.rows) == [record[column.name]], column.name


def test_parquet_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pyarrow, the error names the extra and the formats that do not need it."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match="pyarrow") as caught:
        FORMATS["parquet"](io.BytesIO(), WINDOW)
    assert "isochrone[export]" in caught.value.hint
    FORMATS["csv"](io.BytesIO(), WINDOW)


def write_half(path: Path) -> None:
    with open_output(path, force=True) as file:
        file.write(b"half")
        raise KeyboardInterrupt


def write_late(path: Path) -> None:
    with open_output(path, force=False) as file:
        file.write(b"ours")
        path.write_bytes(b"theirs")


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    """The file does not exist until the block has ended; an error leaves no file, not even a partial one."""
    path = tmp_path / "samples.csv"
    with open_output(path, force=False) as file:
        file.write(b"one")
        assert not path.exists()
    assert path.read_bytes() == b"one"
    with pytest.raises(KeyboardInterrupt):
        write_half(path)
    assert path.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [path]


def test_a_terminal_gets_no_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal, raw is not; a pipe gets the bytes as they are."""
    content, shown = "a\x1b[2Jb\u202ec é\nd\n".encode(), "a [2Jb c é\nd\n"
    for terminal, expected in ((True, shown.encode()), (False, content)):
        reader, writer = os.openpty() if terminal else os.pipe()
        if terminal:
            tty.setraw(writer)
        with os.fdopen(writer, "w", encoding="utf-8") as stdout, os.fdopen(reader, "rb", buffering=0) as seen:
            monkeypatch.setattr(sys, "stdout", stdout)
            with open_output(STDOUT, force=False) as file:
                file.write(content)
            assert render_options(Output(format="csv", raw=True)).raw is not terminal
            assert seen.read(1_000) == expected


def test_who_was_faster_is_not_overwritten(tmp_path: Path) -> None:
    """A file that was created during the export is not overwritten."""
    path = tmp_path / "samples.csv"
    with pytest.raises(FileError, match="already exists"):
        write_late(path)
    assert path.read_bytes() == b"theirs"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path: Path, *, there: bool) -> None:
    """A symbolic link is never replaced and counts as existing, even if its target is missing."""
    goal, link = tmp_path / "elsewhere" / "goal.csv", tmp_path / "link.csv"
    goal.parent.mkdir()
    if there:
        goal.write_bytes(b"theirs")
    link.symlink_to(goal)
    with pytest.raises(FileError, match="already exists"), open_output(link, force=False):
        pass
    assert goal.exists() == there
    with open_output(link, force=True) as file:
        file.write(b"ours")
    assert link.readlink() == goal
    assert goal.read_bytes() == b"ours"
    assert list(goal.parent.iterdir()) == [goal]


@pytest.mark.parametrize("linked", [True, False])
def test_a_pipe_is_not_replaced(tmp_path: Path, *, linked: bool) -> None:
    """Anything but a regular file is refused by name and not changed, even behind a link."""
    pipe = path = tmp_path / "pipe"
    os.mkfifo(pipe)
    if linked:
        path = tmp_path / "link"
        path.symlink_to(pipe)
    with pytest.raises(FileError, match=f"{path.name} is not a regular file"), open_output(path, force=True):
        pass
    assert pipe.is_fifo()
    assert path.is_symlink() == linked


def test_standard_output_by_its_other_name(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """`/dev/stdout` means the same as `-`."""
    with open_output(Path("/dev/stdout"), force=False) as file:
        file.write(b"ours")
    assert capfdbinary.readouterr().out == b"ours"


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    """A folder cannot be overwritten, with force or without."""
    with pytest.raises(FileError, match="is a folder"), open_output(tmp_path, force=True):
        pass


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
