"""The screen of the demo as lines of text: progress, the board, what happened, and what to try. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from textwrap import wrap

from rich.text import Text

from isochrone_client.demo.board import ROUNDS_NEEDED, Board, Cell
from isochrone_client.formats import UNKNOWN, milliseconds, number
from isochrone_wire.answers import Decision

CHANGED_MARK = "▲"
_STYLE_OF = {Decision.FASTER: "green", Decision.SLOWER: "red"}
_CHANGED_STYLE = "bold red"
_GAP = "  "
# Widths of the numbers of a cell.
_TTFT, _SHIFT, _ERROR, _NETWORK = 4, 5, 4, 7
# Room for every decision in full, or in a short form.
_FULL_WORD, _SHORT_WORD = 10, 6
_SHORT = {Decision.EQUIVALENT: "equal", Decision.UNDECIDED: "?"}
_MIN_BAR = 10
# The order in which lines below the table get their place on a small screen; larger ones have room for more of each.
_PRIORITIES = ("event", "advice", "address", "event", "advice", "blank", "blank")
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
    events: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """The columns of a table: targets with their provider or models only, errors, the decision in `word` letters, and
    the network's part of a difference.
    """

    providers: bool = False
    error: bool = False
    word: int = 0
    network: bool = False

    def name(self, target: str) -> str:
        return target if self.providers else target.partition("/")[2]

    @property
    def difference(self) -> int:
        """The width of a difference."""
        return _SHIFT + (1 + _ERROR if self.error else 0) + (1 + self.word if self.word else 0)

    @property
    def heading(self) -> str:
        """The heading of one region's columns."""
        words = "difference" if self.error else "diff"
        return f"{'ttft':>{_TTFT}}  {words:<{self.difference}}" + (f"{_GAP}{'network':>{_NETWORK}}" * self.network)


# From the most informative to the narrowest.
_FORMS = (
    _Form(providers=True, error=True, word=_FULL_WORD, network=True),
    _Form(providers=True, error=True, word=_FULL_WORD),
    _Form(providers=True, error=True, word=_SHORT_WORD),
    _Form(error=True, word=_SHORT_WORD),
    _Form(error=True),
    _Form(),
)


def screen(view: View, *, width: int, height: int) -> list[Text]:
    """The lines for a terminal of this size. A small one shows less of what happened and what to try."""
    above = [_title(view.progress, width), _legend(view.board.baseline, width)]
    board = table(view.board, window_seconds=view.window_seconds, width=width)
    below = _below(view, width, height - len(above) - len(board))
    return [*above, *board, *below][:height]


def table(board: Board, *, window_seconds: int, width: int) -> list[Text]:
    """The board as lines of at most `width` columns: median times to first token and differences in milliseconds.

    The least important columns are left out if the width is too small for all.
    """
    forms = [form for form in _FORMS if board.has_network or not form.network]
    tables = (_table(board, form, f"last {window_seconds} s, in ms") for form in forms)
    narrowest: list[Text] = []
    for lines in tables:
        narrowest = lines
        if max(line.cell_len for line in lines) <= width:
            break
    return narrowest


def _table(board: Board, form: _Form, title: str) -> list[Text]:
    name_width = max(len(title), *(len(form.name(target)) for target in board.targets))
    first = max(len(board.baseline), _TTFT)
    blocks = [max(len(region), len(form.heading)) for region in board.regions]
    regions = [f"{region:<{block}}" for region, block in zip(board.regions, blocks, strict=True)]
    headings = [f"{form.heading:<{block}}" for block in blocks]
    lines = [
        Text(_GAP.join((f"{title:<{name_width}}", f"{board.baseline:>{first}}", *regions)), style="bold"),
        Text(_GAP.join((" " * name_width, f"{'ttft':>{first}}", *headings)), style="dim"),
    ]
    for target in board.targets:
        line = Text(f"{form.name(target):<{name_width}}{_GAP}{_ttft(board.cell(target, board.baseline)):>{first}}")
        for region, block in zip(board.regions, blocks, strict=True):
            part = _block(board.cell(target, region), form)
            line.append(_GAP).append_text(part).append(" " * (block - part.cell_len))
        lines.append(line)
    for line in lines:
        line.rstrip()
    return lines


def _block(cell: Cell, form: _Form) -> Text:
    """One region's columns of a target."""
    changed = cell.changed_us is not None
    difference = _difference(cell, form) if cell.is_firm else _warming_up(cell, form)
    network = f"{_GAP}{_ms(cell.network_shift, signed=True):>{_NETWORK}}" if form.network else ""
    style = _CHANGED_STYLE if changed else _STYLE_OF.get(cell.decision, "") if cell.is_firm else "dim"
    text = Text(f"{_ttft(cell):>{_TTFT}}")
    text.append(f"{CHANGED_MARK if changed else ' '} {difference:<{form.difference}}", style=style)
    return text.append(network)


def _difference(cell: Cell, form: _Form) -> str:
    shift = f"{_ms(cell.shift, signed=True):>{_SHIFT}}"
    error = f" {'±' + str(_error_ms(cell)):<{_ERROR}}" if form.error else ""
    word = cell.decision if form.word == _FULL_WORD else _SHORT.get(cell.decision, cell.decision)
    return f"{shift}{error} {word}" if form.word else f"{shift}{error}"


def _warming_up(cell: Cell, form: _Form) -> str:
    rounds = f"{min(cell.rounds, ROUNDS_NEEDED)}/{ROUNDS_NEEDED}"
    words = f"{'changing' if cell.is_changing else 'warming up'} {rounds}"
    return words if len(words) <= form.difference else rounds


def _error_ms(cell: Cell) -> int:
    """The larger distance of a bound from the difference, rounded up."""
    shift, low, high = cell.shift or 0.0, cell.low or 0.0, cell.high or 0.0
    return max(1, ceil(milliseconds(max(high - shift, shift - low)) or 0.0))


def _ttft(cell: Cell) -> str:
    return _ms(cell.ttft_us)


def _ms(us: float | None, *, signed: bool = False) -> str:
    return UNKNOWN if us is None else number(milliseconds(us), signed=signed, decimals=0)


def _title(progress: Progress, width: int) -> Text:
    title = Text("Isochrone demo", style="bold").append(_GAP)
    bar = width - title.cell_len - len(str(progress)) - len(_GAP)
    if progress.total is not None and bar >= _MIN_BAR:
        done = min(bar, round(bar * progress.elapsed / progress.total))
        title.append("━" * done, style="cyan").append("┄" * (bar - done), style="dim").append(_GAP)
    title.append(str(progress), style="not bold")
    title.truncate(width)
    return title


def _legend(baseline: str, width: int) -> Text:
    """The meaning of the signs in the table, as far as there is room."""
    parts = (f"difference to {baseline}", "± 95 % interval", f"{CHANGED_MARK} changed", "? undecided")
    texts = ("   ".join(parts[:count]) for count in range(len(parts), 0, -1))
    return Text(next((text for text in texts if len(text) <= width), ""), style="dim")


def _below(view: View, width: int, room: int) -> list[Text]:
    """The newest events, the advice and the addresses that fit into `room` lines."""
    advice, addresses = list(_advice(view.advice, width)), [one for one in view.addresses if len(one) <= width]
    folded = [_folded(event, width) for event in view.events]
    there = {"event": sum(map(len, folded)), "advice": len(advice), "address": len(addresses), "blank": 2}
    shown = dict.fromkeys(there, 0)
    for kind in (*_PRIORITIES, *["advice"] * there["advice"], *["event"] * there["event"]):
        if sum(shown.values()) < room and shown[kind] < there[kind]:
            shown[kind] += 1
    return [
        *[Text("")] * (shown["blank"] > 0),
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
    return wrap(sentence, width, subsequent_indent=_GAP, break_long_words=False, break_on_hyphens=False)


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
