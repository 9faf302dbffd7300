"""Long names in narrow columns: cut where a reader would cut them, and nothing of them lost.

A line breaks after the last `/`, `-`, `_`, `:`, `,` or space that fits, in prose after the last space, else wherever it
is full. Widths are columns of
a terminal, in which some characters take two.
"""

import re

from rich.cells import cell_len, chop_cells

_PIECE = re.compile(r"[^/\-_:, ]*[/\-_:, ]|[^/\-_:, ]+")
_WORD = re.compile(r"[^ ]* |[^ ]+")


def folded(text: str, width: int, *, prose: bool = False) -> list[str]:
    """The lines of `text`, none wider than `width` columns (a wide character in a width of 1 excepted)."""
    lines = [""]
    for piece in (_WORD if prose else _PIECE).findall(text):
        if cell_len(lines[-1] + piece.rstrip(" ")) <= width:
            lines[-1] += piece
        else:
            first, *others = chop_cells(piece, width)
            lines += [first, *others]
    return [line.rstrip(" ") for line in lines if line.strip(" ")] or [""]
