"""Filler text for answers: words that read like English, one token each."""

from random import Random

_WORDS = (  # noqa: SIM905  # a word list reads best as text
    "a function that calls itself is said to be recursive and every such call works on a smaller part of the same "
    "problem until it meets one so small that the answer is known at once we name this the base case without it calls "
    "would never end each result then returns to whoever asked and the results join into the whole think of a stair "
    "which you climb by taking the first step and climbing the rest memory holds a place for each open call so depth "
    "has its price"
).split()
_MULTIBYTE = ("naïve", "café", "時間", "größer", "🌍", "señal", "длина", "日本", "étoile", "🎈", "λόγος", "øre")
_SENTENCE = 12


def filler_tokens(rng: Random, count: int) -> list[str]:
    """Return `count` tokens of text with sentences; every token but the first begins with a space."""
    return _punctuated(rng.choices(_WORDS, k=count))


def multibyte_tokens(count: int) -> list[str]:
    """Return `count` tokens, each with at least one character of several bytes in UTF-8."""
    return _punctuated([_MULTIBYTE[number % len(_MULTIBYTE)] for number in range(count)])


def _punctuated(words: list[str]) -> list[str]:
    tokens = [f" {word}" for word in words]
    for first in range(0, len(words), _SENTENCE):
        tokens[first] = f" {words[first].capitalize()}"
        last = min(first + _SENTENCE, len(words)) - 1
        tokens[last] += "."
    if tokens:
        tokens[0] = tokens[0].lstrip()
    return tokens
