"""Dialects of LLM APIs: each builds requests and translates events into signals. One module each, all pure."""

from isochrone_common.dialects.anthropic import Anthropic
from isochrone_common.dialects.base import NO_QUIRKS, Dialect, Quirks, Request
from isochrone_common.dialects.cohere import Cohere
from isochrone_common.dialects.gemini import Gemini
from isochrone_common.dialects.openai_chat import OpenAIChat
from isochrone_common.dialects.openai_responses import OpenAIResponses

_ALL: tuple[Dialect, ...] = (OpenAIChat(), OpenAIResponses(), Anthropic(), Gemini(), Cohere())
DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in _ALL}

__all__ = ["DIALECTS", "NO_QUIRKS", "Dialect", "Quirks", "Request"]
