"""The target of `probe`: from the catalogue, or from options."""

import pytest

from isochrone_agent.cli.probe import check_effort, resolve_target_options
from isochrone_agent.errors import SettingsError

UNSET = {"base_url": None, "model": None, "dialect": None, "key_env": None}


def test_a_provider_needs_only_its_name() -> None:
    """A provider needs only its name; base URL, dialect and key variable can each be set by an option."""
    options = resolve_target_options("openrouter/meta-llama/llama-3", **UNSET)
    assert (options.provider, options.model) == ("openrouter", "meta-llama/llama-3")
    assert (options.base_url, options.key_env) == ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY")
    given = {"base_url": "http://127.0.0.1:9/v1", "model": None, "dialect": "anthropic", "key_env": "X"}
    options = resolve_target_options("groq/llama", **given)
    assert (options.base_url, options.dialect, options.key_env) == ("http://127.0.0.1:9/v1", "anthropic", "X")


@pytest.mark.parametrize(
    ("what", "more", "sentence"),
    [
        (None, {}, "no target is given"),
        ("grok/x", {}, "did you mean 'groq'"),
        ("llama", {}, "is not PROVIDER/MODEL"),
        ("azure/gpt", {}, "has a placeholder in braces"),
        (None, {"base_url": "localhost:8000", "model": "m"}, "is not an http or https URL"),
        (None, {"base_url": "http://h:0/v1", "model": "m"}, "is not an http or https URL: it has port 0"),
        (None, {"base_url": "http://h:99999/v1", "model": "m"}, "URL: port out of range 0-65535"),
        (None, {"base_url": "http:///v1", "model": "m"}, "URL: it has no host"),
        (None, {"base_url": "http://h/v1/chat/completions", "model": "m"}, "does not end with"),
        ("groq/llama", {"model": "qwen"}, "two models are named: groq/llama and qwen"),
    ],
)
def test_an_unclear_target_is_an_error(what: str | None, more: dict[str, str], sentence: str) -> None:
    """The error states what is missing or wrong, with the nearest known name."""
    with pytest.raises(SettingsError, match=sentence):
        resolve_target_options(what, **{**UNSET, **more})


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
def test_an_unsupported_effort_is_an_error(what: str, effort: str, known: str) -> None:
    """An effort that the model does not support is refused before anything is sent, with a list of those it does."""
    with pytest.raises(SettingsError, match=f"does not support the effort '{effort}'") as refused:
        check_effort(resolve_target_options(what, **UNSET), effort)
    assert refused.value.hint == f"use one of {known}"


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
def test_a_supported_effort_is_accepted(what: str, effort: str | None) -> None:
    """Efforts of the API are accepted, and any word where each provider has its own."""
    check_effort(resolve_target_options(what, **UNSET), effort)
