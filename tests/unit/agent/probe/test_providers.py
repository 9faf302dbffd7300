"""The catalogue of providers, and how a probe finds its subject in it."""

import pytest

from isochrone_agent.cli.target_options import check_effort, resolve_target_options
from isochrone_agent.errors import SettingsError
from isochrone_agent.probe.dialects import DIALECTS, NO_QUIRKS
from isochrone_agent.probe.providers import CATALOGUE, Provider, quirks_of
from isochrone_wire.model import Target

NAMED = "openai anthropic google groq cerebras together fireworks deepinfra cohere xai deepseek moonshot minimax qwen"
NAMED += " zhipu stepfun hunyuan doubao global-apis crazyrouter openrouter azure vllm ollama llamacpp"
NOTHING = {"base_url": None, "model": None, "dialect": None, "key_env": None}


def test_every_named_provider_is_there() -> None:
    """Each provider and gateway that published figures name can be probed by its name."""
    assert set(NAMED.split()) <= set(CATALOGUE)


@pytest.mark.parametrize("provider", CATALOGUE.values(), ids=lambda provider: provider.slug)
def test_every_entry_can_be_used(provider: Provider) -> None:
    """An entry speaks a dialect we have, over TLS unless it is on this machine, and its key has a variable."""
    assert provider.dialect in DIALECTS
    assert provider.base_url.startswith("https://" if provider.key_env else "http://127.0.0.1:")
    assert not provider.base_url.endswith("/")


def test_a_provider_needs_only_its_name() -> None:
    """`groq/llama` finds address, dialect and key variable; the model may hold slashes of its own."""
    subject = resolve_target_options("openrouter/meta-llama/llama-3", **NOTHING)
    assert (subject.provider, subject.model) == ("openrouter", "meta-llama/llama-3")
    assert (subject.base_url, subject.key_env) == ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY")


def test_what_is_said_overrules_the_catalogue() -> None:
    """Address, dialect and variable can each be said otherwise."""
    said = {"base_url": "http://127.0.0.1:9/v1", "model": None, "dialect": "anthropic", "key_env": "X"}
    subject = resolve_target_options("groq/llama", **said)
    assert (subject.base_url, subject.dialect, subject.key_env) == ("http://127.0.0.1:9/v1", "anthropic", "X")


@pytest.mark.parametrize(
    ("what", "more", "sentence"),
    [
        (None, {}, "say what to probe"),
        ("grok/x", {}, "did you mean 'groq'"),
        ("llama", {}, "is not PROVIDER/MODEL"),
        ("azure/gpt", {}, "only you know"),
        (None, {"base_url": "localhost:8000", "model": "m"}, "does not begin with http"),
        ("groq/llama", {"model": "qwen"}, "two models are named: groq/llama and qwen"),
    ],
)
def test_what_does_not_come_to_a_subject(what: str | None, more: dict[str, str], sentence: str) -> None:
    """A subject that is unclear is told in a sentence, with the nearest name."""
    with pytest.raises(SettingsError, match=sentence):
        resolve_target_options(what, **{**NOTHING, **more})


@pytest.mark.parametrize(
    ("what", "effort", "known"),
    [
        ("anthropic/claude-sonnet-4-5", "minimal", "none, low, medium, high"),
        ("anthropic/claude-sonnet-4-5", "max", "none, low, medium, high"),
        ("anthropic/claude-opus-4-7", "minimal", "none, low, medium, high, xhigh, max"),
        ("google/gemini-2.5-flash", "minimal", "none, low, medium, high"),
        ("google/gemini-3.5-flash", "none", "minimal, low, medium, high"),
        ("cohere/command-a", "max", "none, low, medium, high"),
    ],
)
def test_an_effort_that_cannot_be_asked_for_is_refused(what: str, effort: str, known: str) -> None:
    """Where a word has no meaning for the model it is refused before anything is sent, with the words that have one."""
    with pytest.raises(SettingsError, match=f"cannot be asked for the effort '{effort}'") as refused:
        check_effort(resolve_target_options(what, **NOTHING), effort)
    assert refused.value.hint == f"one of {known}"


@pytest.mark.parametrize(
    ("what", "effort"),
    [
        ("openai/gpt-5-mini", "minimal"),
        ("openai-responses/gpt-5", "anything"),
        ("anthropic/claude-opus-4-7", "max"),
        ("anthropic/claude-opus-4-7", None),
        ("google/gemini-2.5-flash", "none"),
    ],
)
def test_an_effort_that_there_is_may_be_pinned(what: str, effort: str | None) -> None:
    """Words that the API knows pass, and any word where each provider has its own."""
    check_effort(resolve_target_options(what, **NOTHING), effort)


def test_quirks_follow_the_provider_and_its_dialect() -> None:
    """OpenAI's own chat wants its limit under the new name; an unknown provider has no quirks."""
    target = Target(id=1, name="t", provider="openai", model="m", base_url="https://api.openai.com/v1")
    assert quirks_of(target).token_limit == "max_completion_tokens"
    assert quirks_of(Target(id=1, name="t", provider="nobody", model="m", base_url="http://x")) == NO_QUIRKS
