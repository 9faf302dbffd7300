"""The API dialects of LLM providers, on the provider's side. One module each, all pure."""

from isochrone_sim.dialects import anthropic, cohere, gemini, openai_chat, openai_responses
from isochrone_sim.dialects.base import Dialect, Renderer, ResponseMetadata
from isochrone_sim.dialects.openai_chat import model_list

_MODULES = (openai_chat, openai_responses, anthropic, gemini, cohere)
DIALECTS: dict[str, Dialect] = {module.DIALECT.name: module.DIALECT for module in _MODULES}
DEFAULT_DIALECT = "openai-chat"

__all__ = ["DEFAULT_DIALECT", "DIALECTS", "Dialect", "Renderer", "ResponseMetadata", "model_list"]
