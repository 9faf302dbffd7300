"""The API dialects of LLM providers, on the provider's side. One module each, all pure."""

from isochrone_sim.dialects.anthropic import Anthropic
from isochrone_sim.dialects.base import Dialect, Renderer, ResponseMetadata
from isochrone_sim.dialects.cohere import Cohere
from isochrone_sim.dialects.gemini import Gemini
from isochrone_sim.dialects.openai_chat import OpenAIChat, model_list
from isochrone_sim.dialects.openai_responses import OpenAIResponses

_ALL: tuple[Dialect, ...] = (OpenAIChat(), OpenAIResponses(), Anthropic(), Gemini(), Cohere())
DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in _ALL}
DEFAULT_DIALECT = "openai-chat"

__all__ = ["DEFAULT_DIALECT", "DIALECTS", "Dialect", "Renderer", "ResponseMetadata", "model_list"]
