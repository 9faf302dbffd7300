"""The screen of the demo as lines of text: progress, the board, what happened, and what to try. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import shorten, wrap

from rich.text import Text

from isochrone_client.screen.board import Board
from isochrone_client.screen.table import CHANGED_MARK, FAILING_MARK, GAP, legend, table

_MIN_BAR = 10
# The order in which lines below the table get their place on a small screen; larger ones have room for more of each.
_PRIORITIES = ("incident", "event", "advice", "address", "event", "advice", "blank", "blank")
_PROMPT = "try "
_CONTINUES = " \\"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Seconds since the start and, unless it is endless, in total; samples recorded, and the failed ones of them."""

    elapsed: float
    total: float | None
    recorded: int = 0
    failed: int = 0

    def __str__(self) -> str:
        time = f"{self.elapsed:.0f} s" if self.total is None else f"{self.elapsed:.0f} of {self.total:g} s"
        return f"{time} · {self.recorded} samples, {self.failed} failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything on the screen; `window_seconds` is what the board covers, `advice` are lines to copy into a shell."""

    progress: Progress
    window_seconds: int
    board: Board
    incidents: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()


def screen(view: View, *, width: int, height: int) -> list[Text]:
    """The lines for a terminal of this size. A small one shows less of what happened and what to try."""
    above = [_title(view.progress, width), _legend(view, width)]
    board = board_table(view.board, window_seconds=view.window_seconds, width=width)
    below = _below(view, width, height - len(above) - len(board))
    return [*above, *board, *below][:height]


def board_table(board: Board, *, window_seconds: int, width: int) -> list[Text]:
    """The board as lines of at most `width` columns: median times to first token and differences in milliseconds."""
    return table(board, title=f"last {window_seconds} s, in ms", width=width)


def _title(progress: Progress, width: int) -> Text:
    title = Text("Isochrone demo", style="bold").append(GAP)
    bar = width - title.cell_len - len(str(progress)) - len(GAP)
    if progress.total is not None and bar >= _MIN_BAR:
        done = min(bar, round(bar * progress.elapsed / progress.total))
        title.append("━" * done, style="cyan").append("┄" * (bar - done), style="dim").append(GAP)
    title.append(str(progress), style="not bold")
    title.truncate(width)
    return title


def _legend(view: View, width: int) -> Text:
    marks = (f"{FAILING_MARK} fails",) if view.incidents else ()
    first = (f"difference to {view.board.baseline}", "± 95 % interval")
    return legend((*first, f"{CHANGED_MARK} changed", *marks, "? undecided"), width)


def _below(view: View, width: int, room: int) -> list[Text]:
    """The newest events, the advice and the addresses that fit into `room` lines."""
    advice, addresses = list(_advice(view.advice, width)), [one for one in view.addresses if len(one) <= width]
    folded = [_folded(event, width) for event in view.events]
    incidents = [shorten(incident, width, placeholder=" …") for incident in view.incidents]
    there = {
        "incident": len(incidents),
        "event": sum(map(len, folded)),
        "advice": len(advice),
        "address": len(addresses),
        "blank": 2,
    }
    shown = dict.fromkeys(there, 0)
    rest = ["incident"] * there["incident"] + ["advice"] * there["advice"] + ["event"] * there["event"]
    for kind in (*_PRIORITIES, *rest):
        if sum(shown.values()) < room and shown[kind] < there[kind]:
            shown[kind] += 1
    return [
        *[Text("")] * (shown["blank"] > 0),
        *(Text(line, style="bold red") for line in incidents[: shown["incident"]]),
        *(Text(line, style="bold") for line in _newest(folded, shown["event"])),
        *[Text("")] * (shown["blank"] > 1),
        *_whole(advice[: shown["advice"]]),
        *(Text(one, style="dim") for one in addresses[: shown["address"]]),
    ]


def _newest(events: list[list[str]], room: int) -> list[str]:
    """The lines of the newest events that fit, and of the newest one at least its beginning."""
    if events and len(events[-1]) > room > 0:
        *lines, last = events[-1][:room]
        return [*lines, f"{last[:-1].rpartition(' ')[0]} …"]
    lines = []
    for event in reversed(events):
        if len(lines) + len(event) > room:
            break
        lines = [*event, *lines]
    return lines


def _folded(sentence: str, width: int) -> list[str]:
    return wrap(sentence, width, subsequent_indent=GAP, break_long_words=False, break_on_hyphens=False)


def _advice(advice: tuple[str, ...], width: int) -> Iterator[Text]:
    """The lines to copy; one that is too long is continued as a shell has it."""
    room = width - len(_PROMPT)
    folded = [part for line in advice for part in continued(line, room)]
    for number_, line in enumerate(folded):
        yield Text(" " * len(_PROMPT) if number_ else _PROMPT, style="dim").append(line, style="cyan")


def continued(line: str, width: int) -> list[str]:
    """The line in parts of at most `width` columns, with a backslash at the end of all but the last."""
    if len(line) <= width:
        return [line]
    *parts, last = _folded(line, width - len(_CONTINUES))
    return [*(f"{part}{_CONTINUES}" for part in parts), last]


def _whole(lines: list[Text]) -> list[Text]:
    """The lines without a command at the end whose continuation is missing."""
    while lines and lines[-1].plain.endswith(_CONTINUES):
        lines = lines[:-1]
    return lines
