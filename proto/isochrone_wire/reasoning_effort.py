"""Reasoning effort, dialect by dialect: the words there are for it, and how many tokens it adds to an answer. Pure.

The agent asks by these tables, and the collector judges a plan and forecasts its cost by the same ones. Facts of the
providers' public documentation.
"""

import re

ANTHROPIC_BUDGET = {"low": 1024, "medium": 4096, "high": 16_384}
"""Tokens to think with, as Claude until 4.5 is given them."""

GEMINI_BUDGET = {"none": 0, "low": 1024, "medium": 4096, "high": 16_384}
"""Tokens to think with, as Gemini until 2.5 is given them."""

GEMINI_LEVELS = ("minimal", "low", "medium", "high")
"""What Gemini since 3 is told instead."""

COHERE_THINKING = {"none": "disabled", "low": "enabled", "medium": "enabled", "high": "enabled"}
"""Cohere's thinking is on or off, and no more or less of it."""

COMMON_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "default")
"""Words in use where each provider has its own, and a dialect takes any."""

# How much longer than the answer a response of Anthropic's may be: without a budget, as much as there is reason to
# expect.
_ANTHROPIC_THINKING_TOKENS = {**ANTHROPIC_BUDGET, "xhigh": 32_768, "max": 32_768}
_CLAUDE_VERSION = re.compile(r"claude-(?:(\d)|[a-z]+-(\d+)(?:[-.](\d{1,2}))?)(?!\d)")
_ADAPTIVE_SINCE = (4, 6)
_GEMINI_WITH_BUDGET = re.compile(r"gemini-[12]\b")


def supported_efforts(dialect: str, model: str) -> tuple[str, ...] | None:
    """The words of effort there are for `model`; `None` where the API takes any and judges them itself.

    A request with another word says it all the same, for the provider to refuse it: left out, it would be measured as
    something that it is not.
    """
    if dialect == "anthropic":
        return ("none", *(_ANTHROPIC_THINKING_TOKENS if is_adaptive(model) else ANTHROPIC_BUDGET))
    if dialect == "gemini":
        return tuple(GEMINI_BUDGET) if has_budget(model) else GEMINI_LEVELS
    return tuple(COHERE_THINKING) if dialect == "cohere" else None


def thinking_tokens(dialect: str, effort: str | None) -> int:
    """By how many tokens an answer may be longer than the workload says, because it is asked for with `effort`.

    Anthropic's limit covers thinking and answer, so that there it is raised; elsewhere what the workload allows is for
    both together.
    """
    return _ANTHROPIC_THINKING_TOKENS.get(effort or "", 0) if dialect == "anthropic" else 0


def is_adaptive(model: str) -> bool:
    """Whether an Anthropic model finds its own measure of thinking, as Claude does since 4.6. Others than Claude speak
    the dialect as it was before.
    """
    found = _CLAUDE_VERSION.search(model)
    if found is None:
        return "claude" in model
    version = (int(found[1] or found[2]), int(found[3] or 0))
    return version >= _ADAPTIVE_SINCE


def has_budget(model: str) -> bool:
    """Whether a Gemini model thinks with a budget of tokens, as until 2.5; since 3 it has a level."""
    return _GEMINI_WITH_BUDGET.search(model) is not None
