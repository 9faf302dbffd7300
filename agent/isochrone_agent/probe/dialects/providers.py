"""Catalogue of known providers and gateways: base URL, dialect, key variable and quirks, from their public
documentation. A plan may override each of these.
"""

from dataclasses import dataclass

from isochrone_agent.probe.dialects.base import NO_QUIRKS, Quirks
from isochrone_wire.model import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One entry. `key_env` is `None` if no key is needed; `base_url` may contain a `{placeholder}` for the user."""

    slug: str
    label: str
    base_url: str
    dialect: str = "openai-chat"
    key_env: str | None
    quirks: Quirks = NO_QUIRKS

    @property
    def has_placeholder(self) -> bool:
        """True if the base URL has a placeholder that only the user can replace."""
        return "{" in self.base_url


_NEW_LIMIT = Quirks(token_limit="max_completion_tokens")

_ALL = (
    Provider(
        slug="openai", label="OpenAI", base_url="https://api.openai.com/v1", key_env="OPENAI_API_KEY", quirks=_NEW_LIMIT
    ),
    Provider(
        slug="openai-responses",
        label="OpenAI, Responses API",
        base_url="https://api.openai.com/v1",
        dialect="openai-responses",
        key_env="OPENAI_API_KEY",
    ),
    Provider(
        slug="anthropic",
        label="Anthropic",
        base_url="https://api.anthropic.com/v1",
        dialect="anthropic",
        key_env="ANTHROPIC_API_KEY",
    ),
    Provider(
        slug="google",
        label="Google Gemini",
        base_url="https://generativelanguage.googleapis.com/v1beta",
        dialect="gemini",
        key_env="GEMINI_API_KEY",
    ),
    Provider(
        slug="groq",
        label="Groq",
        base_url="https://api.groq.com/openai/v1",
        key_env="GROQ_API_KEY",
        quirks=_NEW_LIMIT,
    ),
    Provider(
        slug="cerebras",
        label="Cerebras",
        base_url="https://api.cerebras.ai/v1",
        key_env="CEREBRAS_API_KEY",
        quirks=_NEW_LIMIT,
    ),
    Provider(slug="together", label="Together AI", base_url="https://api.together.xyz/v1", key_env="TOGETHER_API_KEY"),
    Provider(
        slug="fireworks",
        label="Fireworks AI",
        base_url="https://api.fireworks.ai/inference/v1",
        key_env="FIREWORKS_API_KEY",
    ),
    Provider(
        slug="deepinfra",
        label="DeepInfra",
        base_url="https://api.deepinfra.com/v1/openai",
        key_env="DEEPINFRA_API_KEY",
    ),
    Provider(
        slug="cohere", label="Cohere", base_url="https://api.cohere.com/v2", dialect="cohere", key_env="COHERE_API_KEY"
    ),
    Provider(slug="xai", label="xAI", base_url="https://api.x.ai/v1", key_env="XAI_API_KEY"),
    Provider(slug="deepseek", label="DeepSeek", base_url="https://api.deepseek.com/v1", key_env="DEEPSEEK_API_KEY"),
    Provider(
        slug="moonshot", label="Moonshot (Kimi)", base_url="https://api.moonshot.ai/v1", key_env="MOONSHOT_API_KEY"
    ),
    Provider(slug="minimax", label="MiniMax", base_url="https://api.minimax.io/v1", key_env="MINIMAX_API_KEY"),
    Provider(
        slug="qwen",
        label="Alibaba Qwen (international)",
        base_url="https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        key_env="DASHSCOPE_API_KEY",
    ),
    Provider(
        slug="zhipu", label="Zhipu (GLM)", base_url="https://open.bigmodel.cn/api/paas/v4", key_env="ZHIPU_API_KEY"
    ),
    Provider(slug="stepfun", label="StepFun", base_url="https://api.stepfun.com/v1", key_env="STEPFUN_API_KEY"),
    Provider(
        slug="hunyuan",
        label="Tencent Hunyuan",
        base_url="https://api.hunyuan.cloud.tencent.com/v1",
        key_env="HUNYUAN_API_KEY",
    ),
    Provider(
        slug="doubao",
        label="ByteDance Doubao (Ark)",
        base_url="https://ark.cn-beijing.volces.com/api/v3",
        key_env="ARK_API_KEY",
    ),
    Provider(
        slug="global-apis", label="global-apis", base_url="https://global-apis.com/v1", key_env="GLOBAL_APIS_API_KEY"
    ),
    Provider(
        slug="crazyrouter", label="Crazyrouter", base_url="https://crazyrouter.com/v1", key_env="CRAZYROUTER_API_KEY"
    ),
    Provider(
        slug="openrouter", label="OpenRouter", base_url="https://openrouter.ai/api/v1", key_env="OPENROUTER_API_KEY"
    ),
    Provider(
        slug="azure",
        label="Azure OpenAI",
        base_url="https://{resource}.openai.azure.com/openai/v1",
        key_env="AZURE_OPENAI_API_KEY",
        quirks=_NEW_LIMIT,
    ),
    Provider(slug="vllm", label="vLLM, self-hosted", base_url="http://127.0.0.1:8000/v1", key_env=None),
    Provider(slug="ollama", label="Ollama, self-hosted", base_url="http://127.0.0.1:11434/v1", key_env=None),
    Provider(slug="llamacpp", label="llama.cpp server, self-hosted", base_url="http://127.0.0.1:8080/v1", key_env=None),
)

CATALOGUE: dict[str, Provider] = {provider.slug: provider for provider in _ALL}


def quirks_of(target: Target) -> Quirks:
    """Return the quirks of the target's provider; none for an unknown provider, or on another dialect."""
    provider = CATALOGUE.get(target.provider)
    return provider.quirks if provider and provider.dialect == target.dialect else NO_QUIRKS
