"""HTTP routes that are answered from the database: explanations of tables and differentials."""

from starlette.requests import Request
from starlette.responses import Response

from isochrone_collector.http_api import query_parameters
from isochrone_collector.http_api.encoded_tables import encode_line
from isochrone_collector.queries import differentials, routes
from isochrone_collector.queries.context import QueryContext
from isochrone_wire.answers import Selection

DIFF = ("baseline", "against", "metric", "window", "from", "until", "target", "format")
EXPLAIN = ("generation", "format")


class QueryRoutes:
    """Routes with the same answers as over gRPC."""

    def __init__(self, query_context: QueryContext) -> None:
        self._query_context = query_context

    async def diff(self, request: Request) -> Response:
        """Return differentials; `against` and `target` may be repeated."""
        parameters = query_parameters.parse(request.scope["query_string"], known=DIFF)
        query_parameters.require_json(parameters.one("format"))
        answer = await differentials.differentials(
            self._query_context,
            Selection(
                window=query_parameters.window(parameters, now_at=self._query_context.clock()),
                targets=parameters.all("target"),
            ),
            baseline=parameters.one("baseline"),
            against=parameters.all("against"),
            metric=parameters.one("metric"),
        )
        return _json_response(answer)

    async def explain(self, request: Request) -> Response:
        """Explain a table: the newest, or that of a generation."""
        parameters = query_parameters.parse(request.scope["query_string"], known=EXPLAIN)
        query_parameters.require_json(parameters.one("format"))
        generation = query_parameters.generation(parameters.one("generation"), name="generation")
        place = request.path_params
        answer = await routes.explanation(
            self._query_context, place["client_region"], place["route"], generation=generation
        )
        return _json_response(answer)


def _json_response(answer: object) -> Response:
    return Response(encode_line(answer), headers={"Cache-Control": "no-cache"}, media_type="application/json")
