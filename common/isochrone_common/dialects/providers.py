"""Catalogue of known providers and gateways, from their public documentation. A plan may override each value."""

from dataclasses import dataclass

from isochrone_common.dialects.base import NO_QUIRKS, Quirks
from isochrone_wire.model import Target


@dataclass(frozen=True, slots=True)
class Provider:
    """One entry. `key_env` is `None` if no key is needed; `base_url` may contain a `{placeholder}` for the user."""

    slug: str
    label: str
    base_url: str
    key_env: str | None
    dialect: str = "openai-chat"
    quirks: Quirks = NO_QUIRKS


_NEW_LIMIT = Quirks(token_limit="max_completion_tokens")

_ALL = (
    Provider("openai", "OpenAI", "https://api.openai.com/v1", "OPENAI_API_KEY", quirks=_NEW_LIMIT),
    Provider(
        "openai-responses",
        "OpenAI, Responses API",
        "https://api.openai.com/v1",
        "OPENAI_API_KEY",
        dialect="openai-responses",
    ),
    Provider("anthropic", "Anthropic", "https://api.anthropic.com/v1", "ANTHROPIC_API_KEY", dialect="anthropic"),
    Provider(
        "google",
        "Google Gemini",
        "https://generativelanguage.googleapis.com/v1beta",
        "GEMINI_API_KEY",
        dialect="gemini",
    ),
    Provider("groq", "Groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", quirks=_NEW_LIMIT),
    Provider("cerebras", "Cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY", quirks=_NEW_LIMIT),
    Provider("together", "Together AI", "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    Provider("fireworks", "Fireworks AI", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    Provider("deepinfra", "DeepInfra", "https://api.deepinfra.com/v1/openai", "DEEPINFRA_API_KEY"),
    Provider("cohere", "Cohere", "https://api.cohere.com/v2", "COHERE_API_KEY", dialect="cohere"),
    Provider("xai", "xAI", "https://api.x.ai/v1", "XAI_API_KEY"),
    Provider("deepseek", "DeepSeek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    Provider("moonshot", "Moonshot (Kimi)", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
    Provider("minimax", "MiniMax", "https://api.minimax.io/v1", "MINIMAX_API_KEY"),
    Provider(
        "qwen",
        "Alibaba Qwen (international)",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        "DASHSCOPE_API_KEY",
    ),
    Provider("zhipu", "Zhipu (GLM)", "https://open.bigmodel.cn/api/paas/v4", "ZHIPU_API_KEY"),
    Provider("stepfun", "StepFun", "https://api.stepfun.com/v1", "STEPFUN_API_KEY"),
    Provider("hunyuan", "Tencent Hunyuan", "https://api.hunyuan.cloud.tencent.com/v1", "HUNYUAN_API_KEY"),
    Provider("doubao", "ByteDance Doubao (Ark)", "https://ark.cn-beijing.volces.com/api/v3", "ARK_API_KEY"),
    Provider("global-apis", "global-apis", "https://global-apis.com/v1", "GLOBAL_APIS_API_KEY"),
    Provider("crazyrouter", "Crazyrouter", "https://crazyrouter.com/v1", "CRAZYROUTER_API_KEY"),
    Provider("openrouter", "OpenRouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    Provider(
        "azure",
        "Azure OpenAI",
        "https://{resource}.openai.azure.com/openai/v1",
        "AZURE_OPENAI_API_KEY",
        quirks=_NEW_LIMIT,
    ),
    Provider("vllm", "vLLM, self-hosted", "http://127.0.0.1:8000/v1", None),
    Provider("ollama", "Ollama, self-hosted", "http://127.0.0.1:11434/v1", None),
    Provider("llamacpp", "llama.cpp server, self-hosted", "http://127.0.0.1:8080/v1", None),
)

CATALOGUE: dict[str, Provider] = {provider.slug: provider for provider in _ALL}


def quirks_of(target: Target) -> Quirks:
    """Return the quirks of the target's provider; none for an unknown provider, or on another dialect."""
    provider = CATALOGUE.get(target.provider)
    return provider.quirks if provider and provider.dialect == target.dialect else NO_QUIRKS
