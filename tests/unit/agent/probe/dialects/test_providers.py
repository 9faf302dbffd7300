"""The catalogue of providers."""

import pytest

from isochrone_agent.probe.dialects import DIALECTS, NO_QUIRKS
from isochrone_agent.probe.dialects.providers import CATALOGUE, Provider, quirks_of
from isochrone_wire.model import Target

NAMED = "openai anthropic google groq cerebras together fireworks deepinfra cohere xai deepseek moonshot minimax qwen"
NAMED += " zhipu stepfun hunyuan doubao global-apis crazyrouter openrouter azure vllm ollama llamacpp"


def test_every_named_provider_is_there() -> None:
    """Every provider and gateway that appears in published figures is in the catalogue."""
    assert set(NAMED.split()) <= set(CATALOGUE)


@pytest.mark.parametrize("provider", CATALOGUE.values(), ids=lambda provider: provider.slug)
def test_every_entry_can_be_used(provider: Provider) -> None:
    """An entry has a known dialect, and a key variable and TLS unless it is on this machine."""
    assert provider.dialect in DIALECTS
    assert provider.base_url.startswith("https://" if provider.key_env else "http://127.0.0.1:")
    assert not provider.base_url.endswith("/")


def test_quirks_follow_the_provider_and_its_dialect() -> None:
    """OpenAI's own chat needs the new name of the token limit; an unknown provider has no quirks."""
    target = Target(id=1, name="t", provider="openai", model="m", base_url="https://api.openai.com/v1")
    assert quirks_of(target).token_limit == "max_completion_tokens"
    assert quirks_of(Target(id=1, name="t", provider="nobody", model="m", base_url="http://x")) == NO_QUIRKS
