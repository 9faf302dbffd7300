"""Reasoning effort by dialect: the supported values, and the number of tokens that each adds to a response. Pure.

Agents build requests from these tables; the collector uses them to validate plans and to forecast cost. Source: the
providers' public documentation.
"""

import re

ANTHROPIC_BUDGET = {"low": 1024, "medium": 4096, "high": 16_384}
"""Thinking budgets in tokens, for Claude up to 4.5."""

GEMINI_BUDGET = {"none": 0, "low": 1024, "medium": 4096, "high": 16_384}
"""Thinking budgets in tokens, for Gemini up to 2.5."""

GEMINI_LEVELS = ("minimal", "low", "medium", "high")
"""Thinking levels, for Gemini 3 and newer."""

COHERE_THINKING = {"none": "disabled", "low": "enabled", "medium": "enabled", "high": "enabled"}
"""Cohere's thinking is either enabled or disabled."""

COMMON_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "default")
"""Values in common use, for dialects whose providers each define their own."""

# Tokens added to the output limit for Anthropic; for efforts without a budget, an estimate.
_ANTHROPIC_THINKING_TOKENS = {**ANTHROPIC_BUDGET, "xhigh": 32_768, "max": 32_768}
_CLAUDE_VERSION = re.compile(r"claude-(?:(\d)|[a-z]+-(\d+)(?:[-.](\d{1,2}))?)(?!\d)")
_ADAPTIVE_SINCE = (4, 6)
_GEMINI_WITH_BUDGET = re.compile(r"gemini-[12]\b")


def supported_efforts(dialect: str, model: str) -> tuple[str, ...] | None:
    """Return the efforts that `model` supports, or `None` if the provider's API validates them itself.

    A request with an unsupported effort is sent unchanged, for the provider to refuse it: without the effort, the
    probe would measure a different workload.
    """
    if dialect == "anthropic":
        return ("none", *(_ANTHROPIC_THINKING_TOKENS if is_adaptive(model) else ANTHROPIC_BUDGET))
    if dialect == "gemini":
        return tuple(GEMINI_BUDGET) if has_budget(model) else GEMINI_LEVELS
    return tuple(COHERE_THINKING) if dialect == "cohere" else None


def thinking_tokens(dialect: str, effort: str | None) -> int:
    """Return the number of tokens that `effort` adds to the output limit of the workload.

    Anthropic's limit covers thinking and answer, so it is raised; in other dialects the workload's own limit covers
    both.
    """
    return _ANTHROPIC_THINKING_TOKENS.get(effort or "", 0) if dialect == "anthropic" else 0


def is_adaptive(model: str) -> bool:
    """Return true for adaptive thinking: Claude 4.6 and newer. Other vendors' models with this dialect use budgets."""
    found = _CLAUDE_VERSION.search(model)
    if found is None:
        return "claude" in model
    version = (int(found[1] or found[2]), int(found[3] or 0))
    return version >= _ADAPTIVE_SINCE


def has_budget(model: str) -> bool:
    """Return true for a thinking budget in tokens (Gemini up to 2.5), false for a level (Gemini 3 and newer)."""
    return _GEMINI_WITH_BUDGET.search(model) is not None
