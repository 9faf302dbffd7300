"""Where text leaves: answers on stdout, remarks on stderr, colours only where somebody sees them."""

import io
import os
import shutil
import sys

import click

from isochrone_client.render import renderer
from isochrone_client.render.page import Page, RenderOptions, Row
from isochrone_wire.text import printable

PIPED_WIDTH = 100


def look() -> RenderOptions:
    """What stdout may be sent: colours and the window's width on a terminal, 100 plain columns anywhere else."""
    if not sys.stdout.isatty():
        return RenderOptions(width=PIPED_WIDTH)
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return RenderOptions(width=shutil.get_terminal_size().columns, colour=not plain)


def write(page: Page[Row], output: str) -> None:
    """The page on stdout in one of the formats of `render.OUTPUTS`."""
    _say(renderer(output).whole(page, look()))


def write_blank() -> None:
    """An empty line on stdout, between two pages for people."""
    _say("\n")


def begin(page: Page[Row], output: str) -> None:
    """The page on stdout as the beginning of an answer that goes on."""
    _say(renderer(output).opening(page, look()))


def go_on(page: Page[Row], output: str) -> None:
    """More rows of the answer begun."""
    _say(renderer(output).more(page, look()))


def remark(sentence: str) -> None:
    """A sentence on stderr that is no complaint."""
    click.echo(f"isochrone: {printable(sentence)}", err=True)


def progress(sentence: str) -> None:
    """A remark for somebody who waits: only where stderr is a terminal."""
    if sys.stderr.isatty():
        remark(sentence)


def tolerate_any_encoding() -> None:
    """Replace what the terminal's encoding cannot say, dashes and dots, instead of failing on it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _say(text: str) -> None:
    if text:
        click.echo(text, nl=False, color=True)
