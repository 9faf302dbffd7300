"""Folding of text to a width in terminal columns: between words, and after a `/` only if a word does not fit."""

import re

# Marks beyond ASCII that take one column; other characters are looked up.
_NARROW = frozenset("–—…→↑↓±≤≥×·µ²³ÄÖÜäöüß’“”")  # noqa: RUF001  # signs that tables contain
_WORD = re.compile(r"(?:[^ ]*\d (?:%|ms|s|min|h|d)(?![^ ,.;:)\]])[^ ]*|[^ ]+) *")
_NAME_PART = re.compile(r"[^/]*/|[^/]+")
_ELLIPSIS = "…"


def text_width(text: str) -> int:
    """The number of terminal columns of a text without control characters."""
    if text.isascii() or all(mark < "\x7f" or mark in _NARROW for mark in text):
        return len(text)
    # Loaded only for a text that needs it: the import takes as long as a question to the collector.
    from rich.cells import cell_len  # noqa: PLC0415

    return cell_len(text)


def words(text: str) -> list[str]:
    """The parts of a text that are kept whole: words, and numbers with their unit (`31 ms`)."""
    return [word.rstrip(" ") for word in _WORD.findall(text)]


def fold(text: str, width: int, *, shorten: bool = False) -> list[str]:
    """Fold `text` into lines of at most `width` columns (one wide character may exceed a width of 1).

    A line breaks between words. A word that is longer than a line is folded after a `/`; what is still too long is
    broken where the line is full, or with `shorten` loses its middle.
    """
    if text_width(text) <= width:
        return [text]
    lines = [""]
    for word in _WORD.findall(text):
        if text_width(lines[-1] + word.rstrip(" ")) <= width:
            lines[-1] += word
        else:
            lines += _folded_word(word.rstrip(" "), width, shorten=shorten)
            lines[-1] += " " * (len(word) - len(word.rstrip(" ")))
    return [line.rstrip(" ") for line in lines if line.strip(" ")] or [""]


def _folded_word(word: str, width: int, *, shorten: bool) -> list[str]:
    if text_width(word) <= width:
        return [word]
    lines = [""]
    for part in _NAME_PART.findall(word):
        if text_width(lines[-1] + part) <= width:
            lines[-1] += part
        else:
            lines += [shortened(part, width)] if shorten else _broken(part, width)
    return list(filter(None, lines))


def shortened(word: str, width: int) -> str:
    """The beginning and the end of a word, with an ellipsis in place of what does not fit between."""
    if text_width(word) <= width:
        return word
    end = _first(word[::-1], (width - 1) // 2)[::-1]
    return f"{_first(word, width - 1 - text_width(end))}{_ELLIPSIS}{end}"


def _broken(word: str, width: int) -> list[str]:
    lines = []
    while word:
        first = _first(word, width) or word[0]
        lines.append(first)
        word = word[len(first) :]
    return lines


def _first(text: str, width: int) -> str:
    """The beginning of a text that fits."""
    end = min(len(text), max(width, 0))
    while text_width(text[:end]) > width:
        end -= 1
    return text[:end]
