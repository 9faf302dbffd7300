"""Output of the commands: answers on stdout, remarks on stderr, colours on a terminal only."""

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import click

from isochrone_client.errors import InsufficientError, SlowError, UnreachableError
from isochrone_client.render import renderer
from isochrone_client.render.json import one_line
from isochrone_client.render.page import Page, RenderOptions, Row, field_places, select_fields
from isochrone_common.cli.command_line import fit_terminal, print_error, terminal_width
from isochrone_wire.text import printable

# Cursor home, then erase the screen: what is shown next replaces what was there.
_CLEAR = "\x1b[H\x1b[2J"


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The format of an answer, one of `render.OUTPUTS`, and its fields; all of them if none is named.

    `wide` and `raw` are those of `RenderOptions`; a terminal gets no `raw` text. A `repeated` answer takes the place of
    the one before.
    """

    format: str = "table"
    fields: tuple[str, ...] = ()
    wide: bool | None = None
    raw: bool = False
    repeated: bool = False

    @property
    def is_for_people(self) -> bool:
        """True for the formats that are rounded and shortened for people."""
        return self.format in ("table", "markdown") and not self.fields


@dataclass(slots=True)
class _Pass:
    """One answer of `repeat`: the first one, and one of which a page has been printed."""

    is_first: bool
    has_begun: bool = False


_PASS = "isochrone.pass"
TABLE = Output()


def render_options(output: Output = TABLE) -> RenderOptions:
    """The width of stdout, and its colours: none unless it is a terminal."""
    is_terminal = sys.stdout.isatty()
    colour = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    raw = output.raw and not is_terminal
    return RenderOptions(width=terminal_width(sys.stdout), colour=colour, wide=output.wide, raw=raw)


def write(page: Page[Row], output: Output = TABLE) -> None:
    """Print a page."""
    if output.repeated:
        _refresh(page, output)
        return
    _print(renderer(output.format).whole(_selected(page, output), render_options(output)))


def write_all(pages: Iterable[Page[Row]], output: Output) -> None:
    """Print pages as one answer that continues, as they come, until Ctrl-C."""
    how = renderer(output.format)
    part = how.opening
    with suppress(KeyboardInterrupt):
        for page in pages:
            _print(part(_selected(page, output), render_options(output)))
            part = how.more


def repeat(show: Callable[[], None], *, every_s: float) -> None:
    """Call `show`, which writes a repeated answer, every `every_s` seconds until Ctrl-C.

    An outage of the collector is printed once, and `show` is called again until it ends. Raises the errors of the first
    call.
    """
    first, is_away = True, False
    with suppress(KeyboardInterrupt):
        while True:
            click.get_current_context().meta[_PASS] = _Pass(is_first=first)
            try:
                show()
                is_away = False
            except InsufficientError as error:
                print_error(str(error), prefix="note")
                is_away = False
            except (UnreachableError, SlowError) as error:
                if first:
                    raise
                if not is_away:
                    print_error(f"{error}; trying again every {every_s:g} s")
                is_away = True
            first = False
            time.sleep(every_s)


def _refresh(page: Page[Row], output: Output) -> None:
    """Print a page in place of the one before on a terminal; elsewhere below it, json as one document per line."""
    selected, how, options = _selected(page, output), renderer(output.format), render_options(output)
    now: _Pass = click.get_current_context().meta[_PASS]
    if output.format == "json":
        _print(one_line(selected))
    elif output.format == "csv":
        _print((how.opening if now.is_first else how.more)(selected, options))
    elif now.has_begun:
        _print(how.whole(selected, options))
    elif sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        _print(_CLEAR + _fitting_lines(how.whole(selected, options)))
    else:
        _print(("" if now.is_first else "\n") + how.whole(selected, options))
    now.has_begun = True
    sys.stdout.flush()


def _fitting_lines(text: str) -> str:
    """The lines for which the terminal has room: the first ones, whose place must not change."""
    lines, room = text.splitlines(keepends=True), shutil.get_terminal_size().lines - 1
    if len(lines) <= room:
        return text
    return "".join((*lines[: room - 1], f"… {len(lines) - room + 1} more lines\n"))


def state_empty(sentence: str) -> None:
    """Print on stderr what an answer without rows means."""
    click.echo(fit_terminal(printable(sentence)), err=True)


def remark(sentence: str) -> None:
    """Print a sentence on stderr that is not an error."""
    click.echo(f"isochrone: {printable(sentence)}", err=True)


def progress(sentence: str) -> None:
    """Print a remark on the progress, only if stderr is a terminal."""
    if sys.stderr.isatty():
        remark(sentence)


def _selected(page: Page[Row], output: Output) -> Page[Any]:
    """The page with the fields chosen. `--fields help` prints their names and ends the command."""
    if not output.fields:
        return page
    if output.fields == ("help",):
        click.echo("\n".join(field_places(page)))
        click.get_current_context().exit(0)
    return select_fields(page, output.fields)


def _print(text: str) -> None:
    if text:
        click.echo(text, nl=False, color=True)
