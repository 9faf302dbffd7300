"""Workloads: the limits of a plan, reasoning efforts by dialect, and the estimate of a request's tokens. Pure.

The collector checks the limits when a plan is applied, and each agent when it fetches one. Agents build requests from
the tables of efforts, whose source is the providers' public documentation; the collector uses them to validate plans
and to forecast cost. Before a request is sent, its prompt is estimated at one token per four bytes of UTF-8, and the
output at its maximum: the workload's limit plus the thinking tokens that the effort adds. The provider's own counts
replace both.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields

from isochrone_wire.durations import DAY_US, HOUR_US
from isochrone_wire.model import Price, Target, Timeouts
from isochrone_wire.text import unknown

MAX_NAME_CHARS, MAX_URL_CHARS = 200, 2_000
# A plan is one message of at most 8 MiB; the remainder is ample for the other fields.
MAX_PROMPTS_BYTES = 6_000_000
_NAME, _OPTIONAL_NAME, _USD, _AMOUNT = (1, MAX_NAME_CHARS), (0, MAX_NAME_CHARS), (0, 1_000_000), (0, 10**15)

Limits = Mapping[str, tuple[int, int]]
"""The least and the largest value of an attribute; of texts and lists their length, of a prompt in bytes."""
TARGET_LIMITS: Limits = {
    "every_us": (200_000, 7 * DAY_US),
    "spread_us": (0, HOUR_US),
    "workload.concurrency": (1, 1_000),
    "workload.max_output_tokens": (1, 100_000),
    "workload.temperature": (0, 2),
    **{f"workload.timeouts.{each.name}": (1_000, HOUR_US) for each in fields(Timeouts)},
    "workload.prompt": (1, 100_000),
    "workload.reasoning_effort": (0, 40),
    "name": (1, 2 * MAX_NAME_CHARS + 1),
    **dict.fromkeys(("provider", "model", "dialect"), _NAME),
    **dict.fromkeys(("credential", "region"), _OPTIONAL_NAME),
    "base_url": (1, MAX_URL_CHARS),
}
PRICE_LIMITS: Limits = {"usd_per_m_input": _USD, "usd_per_m_output": _USD}
BUDGET_LIMITS: Limits = {"usd_per_day": _USD, "tokens_per_day": _AMOUNT, "requests_per_day": _AMOUNT}
PLAN_LIMITS: Limits = {"targets": (0, 1_000), "budgets": (0, 1_000)}
DIALECTS = ("openai-chat", "openai-responses", "anthropic", "gemini", "cohere")
POLICY_PREFIX = "policy:"
"""Names that begin so are accounts of an agent's own policy; no provider of a plan may have one."""

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

TOKEN_LIMITS = ("max_tokens", "max_completion_tokens")
"""The names of the token limit in `openai-chat`; in place of one that is omitted the other is sent."""

OPTIONAL_FIELDS = {
    "openai-chat": ("stream_options", "temperature", "reasoning_effort"),
    "openai-responses": ("store", "temperature", "reasoning"),
    "anthropic": ("temperature", "thinking", "output_config"),
    "gemini": ("temperature", "thinkingConfig"),
    "cohere": ("temperature", "thinking"),
}
"""The fields that a request may be without, by dialect."""

# Tokens added to the output limit for Anthropic; for efforts without a budget, an estimate.
_ANTHROPIC_THINKING_TOKENS = {**ANTHROPIC_BUDGET, "xhigh": 32_768, "max": 32_768}
_CLAUDE_VERSION = re.compile(r"claude-(?:(\d)|[a-z]+-(\d+)(?:[-.](\d{1,2}))?)(?!\d)")
_ADAPTIVE_SINCE = (4, 6)
_GEMINI_WITH_BUDGET = re.compile(r"gemini-[12]\b")
_BYTES_PER_TOKEN = 4


def supported_efforts(dialect: str, model: str) -> tuple[str, ...] | None:
    """Return the efforts that `model` supports, or `None` if the provider's API validates them itself. A request with
    an unsupported effort is sent unchanged, for the provider to refuse it: without the effort, the probe would measure
    a different workload.
    """
    if dialect == "anthropic":
        return ("none", *(_ANTHROPIC_THINKING_TOKENS if is_adaptive(model) else ANTHROPIC_BUDGET))
    if dialect == "gemini":
        return tuple(GEMINI_BUDGET) if has_budget(model) else GEMINI_LEVELS
    return tuple(COHERE_THINKING) if dialect == "cohere" else None


def omissible(dialect: str) -> tuple[str, ...]:
    """Return the fields that a target may omit. A limit of the tokens always remains, because budgets rely on it."""
    return OPTIONAL_FIELDS.get(dialect, ()) + (TOKEN_LIMITS if dialect == "openai-chat" else ())


def omit_problem(dialect: str, names: Collection[str]) -> str | None:
    """Return why a target of `dialect` cannot omit these fields; `None` if it can."""
    known = omissible(dialect)
    strange = next((name for name in names if name not in known), None)
    if strange is not None:
        return unknown(f"optional field of dialect {dialect}", strange, known)
    return f"{' or '.join(TOKEN_LIMITS)} must be sent" if set(TOKEN_LIMITS) <= set(names) else None


def thinking_tokens(dialect: str, effort: str | None) -> int:
    """Return the number of tokens that `effort` adds to the output limit of the workload. Anthropic's limit covers
    thinking and answer, so it is raised; in other dialects the workload's own limit covers both.
    """
    return _ANTHROPIC_THINKING_TOKENS.get(effort or "", 0) if dialect == "anthropic" else 0


def is_adaptive(model: str) -> bool:
    """Return true for adaptive thinking: Claude 4.6 and newer. Other vendors' models with this dialect use budgets."""
    found = _CLAUDE_VERSION.search(model)
    return (int(found[1] or found[2]), int(found[3] or 0)) >= _ADAPTIVE_SINCE if found else "claude" in model


def has_budget(model: str) -> bool:
    """Return true for a thinking budget in tokens (Gemini up to 2.5), false for a level (Gemini 3 and newer)."""
    return _GEMINI_WITH_BUDGET.search(model) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestEstimate:
    """The estimated tokens of one request and its response."""

    prompt_tokens: int
    output_tokens: int

    @property
    def tokens(self) -> int:
        """The sum of prompt and output tokens."""
        return self.prompt_tokens + self.output_tokens

    def cost_usd(self, price: Price) -> float:
        """Return the cost in US dollars."""
        return price.cost_usd(prompt_tokens=self.prompt_tokens, output_tokens=self.output_tokens)


def estimate_request(target: Target) -> RequestEstimate:
    """Return the upper estimate for one request to `target`."""
    workload = target.workload
    output = workload.max_output_tokens + thinking_tokens(target.dialect, workload.reasoning_effort)
    prompt = -(-len(workload.prompt.encode()) // _BYTES_PER_TOKEN)
    return RequestEstimate(prompt_tokens=prompt, output_tokens=output)
