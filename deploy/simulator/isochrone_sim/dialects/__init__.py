"""The shapes that LLM APIs speak, seen from the provider's side. One module each, all pure."""

from isochrone_sim.dialects.base import Dialect, Facts, Voice
from isochrone_sim.dialects.openai_chat import OpenAIChat

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (OpenAIChat(),)}
DEFAULT_DIALECT = "openai-chat"

__all__ = ["DEFAULT_DIALECT", "DIALECTS", "Dialect", "Facts", "Voice"]
