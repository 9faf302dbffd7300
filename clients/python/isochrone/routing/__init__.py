"""Requests to LLM providers by Isochrone's route tables: `Routes`, and transports for `httpx` and `httpx2`.

    routes = Routes("https://isochrone.example:4680", "eu-central-1")
    client = openai.OpenAI(http_client=httpx2.Client(transport=isochrone.routing.httpx2.Transport(routes)))

The model of a request is the name of a route of the plan; see docs/clients.md.
"""

from isochrone.routing.attempts import Choice
from isochrone.routing.documents import RoutingError, TableError
from isochrone.routing.routes import Routes

__all__ = ["Choice", "Routes", "RoutingError", "TableError"]
