"""The shapes that LLM APIs speak, seen from the provider's side. One module each, all pure."""

from isochrone_sim.dialects.anthropic import Anthropic
from isochrone_sim.dialects.base import Dialect, Facts, Voice
from isochrone_sim.dialects.cohere import Cohere
from isochrone_sim.dialects.gemini import Gemini
from isochrone_sim.dialects.openai_chat import OpenAIChat, catalogue
from isochrone_sim.dialects.openai_responses import OpenAIResponses

_ALL: tuple[Dialect, ...] = (OpenAIChat(), OpenAIResponses(), Anthropic(), Gemini(), Cohere())
DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in _ALL}
DEFAULT_DIALECT = "openai-chat"

__all__ = ["DEFAULT_DIALECT", "DIALECTS", "Dialect", "Facts", "Voice", "catalogue"]
