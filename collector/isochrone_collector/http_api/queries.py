"""Questions over HTTP that are answered from the database: why a table is as it is, and how regions differ."""

from starlette.requests import Request
from starlette.responses import Response

from isochrone_collector.http_api import query_parameters
from isochrone_collector.http_api.encoded_tables import document
from isochrone_collector.queries import differentials, routes
from isochrone_collector.queries.context import QueryContext
from isochrone_wire.answers import Selection

DIFF = ("baseline", "against", "metric", "window", "from", "until", "target", "format")
EXPLAIN = ("generation", "format")


class Questions:
    """Answers from a desk, the same as over gRPC."""

    def __init__(self, query_context: QueryContext) -> None:
        self._query_context = query_context

    async def diff(self, request: Request) -> Response:
        """Regions against a baseline; `against` and `target` may be said several times."""
        asked = query_parameters.words(request.scope["query_string"], known=DIFF)
        query_parameters.require_json(asked.one("format"))
        answer = await differentials.differentials(
            self._query_context,
            Selection(
                window=query_parameters.window(asked, now_at=self._query_context.clock()), targets=asked.all("target")
            ),
            baseline=asked.one("baseline"),
            against=asked.all("against"),
            metric=asked.one("metric"),
        )
        return _answered(answer)

    async def explain(self, request: Request) -> Response:
        """Why a table is as it is: the newest, or the one of a generation."""
        asked = query_parameters.words(request.scope["query_string"], known=EXPLAIN)
        query_parameters.require_json(asked.one("format"))
        generation = query_parameters.generation(asked.one("generation"), name="generation")
        place = request.path_params
        answer = await routes.explanation(
            self._query_context, place["client_region"], place["route"], generation=generation
        )
        return _answered(answer)


def _answered(answer: object) -> Response:
    return Response(document(answer), headers={"Cache-Control": "no-cache"}, media_type="application/json")
