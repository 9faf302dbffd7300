"""Limits of a plan, checked by the collector when a plan is applied and by each agent when it fetches one."""

_SECOND_US = 1_000_000

MIN_EVERY_US = 200_000
MAX_EVERY_US = 7 * 86_400 * _SECOND_US
MAX_SPREAD_US = 3600 * _SECOND_US
MIN_TIMEOUT_US = 1_000
MAX_TIMEOUT_US = 3600 * _SECOND_US
MAX_OUTPUT_TOKENS = 100_000
MAX_TEMPERATURE = 2
MAX_CONCURRENCY = 1_000
MAX_PROMPT_BYTES = 100_000
# A plan is one message of at most 8 MiB; the remainder is ample for the other fields.
MAX_PROMPTS_BYTES = 6_000_000
MAX_TARGETS = 1_000
MAX_BUDGETS = 1_000
MAX_NAME_CHARS = 200
MAX_URL_CHARS = 2_000
MAX_EFFORT_CHARS = 40
MAX_USD = 1e6
MAX_AMOUNT = 10**15
DIALECTS = ("openai-chat", "openai-responses", "anthropic", "gemini", "cohere")
POLICY_PREFIX = "policy:"
"""Names that begin so are accounts of an agent's own policy; no provider of a plan may have one."""
