"""The Model Context Protocol: an assistant's questions to a collector, as tools on standard input and output.

Each question asks the collector what the command of its name asks, and has the answer of that command, as its Markdown
and as its JSON document. None changes anything. The docstrings and the descriptions of the inputs are what the
assistant reads.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from typing import Annotated, Any, Literal, TypedDict

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field, WithJsonSchema

from isochrone_client.absence import explain as explain_absence
from isochrone_client.address import Collector
from isochrone_client.client import ReadClient
from isochrone_client.errors import ClientError, InsufficientError
from isochrone_client.pages import alerts, differentials, latency_targets, status
from isochrone_client.pages import explanation as stories
from isochrone_client.pages import leaderboard as leaderboards
from isochrone_client.pages import routes as route_pages
from isochrone_client.pages.cells import require_baseline
from isochrone_client.render import json, markdown
from isochrone_client.render.page import Page, RenderOptions, Row, select_fields
from isochrone_client.window import now_at, parse_window
from isochrone_wire import __version__
from isochrone_wire.answers import Metric, Order, Selection
from isochrone_wire.durations import SECOND_US
from isochrone_wire.errors import IsochroneError
from isochrone_wire.queries.differential_order import select_rows
from isochrone_wire.queries.windows import EXAMPLES

_DAY = "24h"


Names = tuple[str, ...]
Only = Literal["", "decided", "faster", "slower", "equivalent", "mixed", "undecided"]

# The descriptions of the inputs by their names, and of one question's input of that name.
_INPUTS = {
    "regions": "Only these regions, where the requests come from, such as us-east-2. Empty: all regions.",
    "targets": "Only targets with these names, such as kimi-k2.5, moonshot/kimi-k2.5 or qwen/*. Empty: all.",
    "window": f"The time range of the measurements, in UTC: {EXAMPLES}.",
    "fields": "Only these fields of the structured content, in this order, for a shorter answer. Empty: all.",
    "by": "Rank by the median of a latency or speed, by price, success, or tokens per dollar.",
    "metric": "The metric to compare; ttft is the time to first token.",
    "baseline": "The region to compare with. Empty: that of the plan.",
    "against": "The regions to compare with the baseline. Empty: every other region.",
    "only": "Only differentials with this decision; decided is all but undecided. Empty: all.",
    "explain": "One target to explain in sentences: how much, how certain, where from, what would help.",
    "region": "The region where the requests come from, such as us-east-2.",
    "route": "Only this route of the plan, such as chat. Empty: all routes.",
    "explain.route": "The name of a route in the plan, such as chat.",
    "generation": "The generation of the table to explain. 0: the newest.",
    "past": "Also the incidents of the window that are over.",
    "incident": "The id of one incident, to show its newest failed samples.",
    "answer_tokens": "The length of the answer, in output tokens.",
    "limit_seconds": "The limit, in seconds from the request to the last token.",
    "min_tokens_per_second": "Requests below this speed, in tokens per second, count as too late.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer: what `--output markdown` prints, and the document of `--output json`.

    The document also has a `note` and a `hint` if the data do not suffice for all of it.
    """

    text: str
    document: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """The questions to one collector; each waits at most `timeout_us` microseconds for a call.

    `baseline` is the region to compare with if a question names none; empty: that of the plan. All raise `ClientError`.
    """

    collector: Collector
    timeout_us: int
    baseline: str = ""

    def leaderboard(
        self,
        *,
        by: Order = Order.TTFT,
        regions: Names = (),
        targets: Names = (),
        window: str = _DAY,
        fields: Names = (),
    ) -> Answer:
        """Rank the measured LLM targets (provider/model) by latency, speed, price or success, from each region.

        The text is a table with latencies in ms. The structured content has a row per region and target: durations in
        microseconds (_us), speed in tokens per second, prices in US dollars per million tokens, success as a share of
        1; value, low and high are an estimate and its 95 % interval. Without inputs it lists all regions and targets.
        """
        with self._client() as client:
            answer = client.get_leaderboard(_selection(window, regions, targets), order=by)
        return self._answer(
            leaderboards.page(answer), lambda: leaderboards.require_ranking(answer), regions=regions, fields=fields
        )

    def diff(
        self,
        *,
        baseline: str = "",
        against: Names = (),
        metric: Metric = Metric.TTFT,
        targets: Names = (),
        window: str = _DAY,
        only: Only = "",
        explain: str = "",
        fields: Names = (),
    ) -> Answer:
        """Compare regions with a baseline region, target by target: is it slower from there, by how much, and why?

        The values are paired by round. shift is region minus baseline, so that a negative one is faster for latencies;
        in the structured content it is in microseconds, and in tokens per second for that metric, with the 95 %
        interval from shift_low to shift_high. A decision is faster, slower, equivalent, mixed or undecided; reason has
        what is missing for one. network_shift and server_shift are the parts of the network and of the provider.
        """
        now, chosen = now_at(), (explain,) if explain else targets
        with self._client() as client:
            reference = baseline or self.baseline or require_baseline(client.get_baseline())
            answer = client.get_differentials(
                _selection(window, (), chosen),
                baseline=reference,
                against=against,
                metric=metric,
                explain=bool(explain),
            )
        rows = select_rows(answer, sort="difference", only=only or None)

        def require() -> None:
            differentials.require_decision(answer, rows, baseline=reference, only=only or None)

        if explain:
            told = (stories.explanation_page(answer, now_at=now), stories.phases_page(answer))
            page = stories.records_page(answer, metric=metric, now_at=now)
            return self._answer(page, require, shown=told, fields=fields)
        return self._answer(differentials.page(answer, rows, metric=metric, now_at=now), require, fields=fields)

    def routes(self, *, regions: Names = (), route: str = "", fields: Names = ()) -> Answer:
        """Show where to send requests now: the route tables in force, per region and route.

        The entries of a table are its members in the order of preference, with the weight (a share of 1) of the
        requests that each should get, its median TTFT in microseconds with the 95 % interval, and whether it meets the
        objective of the route. A table may be used until stale_until_at; then the static order of the plan applies.
        """
        with self._client() as client:
            tables = client.list_tables(regions, route)
        now = now_at()
        return self._answer(
            route_pages.changes_page(tables, now_at=now),
            lambda: route_pages.require_usable(tables, now_at=now),
            shown=(route_pages.page(tables, now_at=now),),
            fields=fields,
        )

    def explain(self, *, region: str, route: str, generation: Annotated[int, Field(ge=0)] = 0) -> Answer:
        """Explain the decision behind the table of a route in a region, step by step: why this member, since when.

        The collector repeats the decision from its stored inputs; replays is true if that gives the same table.
        """
        with self._client() as client:
            answer = client.explain_route(region, route, generation=generation)
        return self._answer(
            route_pages.document(answer, with_inputs=False),
            lambda: route_pages.require_replay(answer),
            shown=(route_pages.explanation_page(answer, now_at=now_at()),),
        )

    def status(self, *, fields: Names = ()) -> Answer:
        """Show what is wrong now: since when, from where, and how sure that is; one sentence if all is well.

        A row of the structured content is a finding with its severity, warning or critical; verdict is the worst of
        them, well, or too_young if there are too few rounds to judge. states has each target from each region.
        """
        with self._client() as client:
            answer = client.get_status()
        return self._answer(status.page(answer, now_at=now_at()), lambda: status.require_age(answer), fields=fields)

    def incidents(self, *, past: bool = False, window: str = _DAY, incident: str = "", fields: Names = ()) -> Answer:
        """Show the targets that fail or are throttled now: since when, from which regions, and how.

        With `past`, also those of the window that are over; with `incident`, one of them and its newest failed samples.
        """
        incident_id = alerts.parse_incident_id(incident) if incident else 0
        with self._client() as client:
            answer = client.list_incidents(parse_window(window), past=past, incident_id=incident_id)
        if incident_id:
            return self._answer(alerts.incident_page(answer.incidents[0]), fields=fields)
        none = "" if answer.incidents else alerts.no_incidents(answer, past=past)
        return self._answer(alerts.incidents_page(answer, past=past), none=none, fields=fields)

    def estimate(
        self,
        *,
        answer_tokens: Annotated[int, Field(ge=1, le=1_000_000)],
        limit_seconds: Annotated[float, Field(ge=0.001, le=86_400)] = 10.0,
        min_tokens_per_second: Annotated[float, Field(ge=0, le=1e6)] = 0.0,
        regions: Names = (),
        targets: Names = (),
        window: str = _DAY,
        fields: Names = (),
    ) -> Answer:
        """Estimate how long an answer of a given length takes, and how often it is complete within a limit.

        Each measured request counts with its first token and its speed, continued to that length. quantile is the time
        that 95 % of the answers need at most, in microseconds with its 95 % interval, and null below 59 samples;
        goodput is the share (of 1) of all planned requests that are in time, with its 95 % interval; eligible is yes or
        no if that interval is above or below 95 %, else maybe, and unknown below 59 samples.
        """
        with self._client() as client:
            answer = client.get_latency_budgets(
                _selection(window, regions, targets),
                answer_tokens=answer_tokens,
                limit_us=round(limit_seconds * SECOND_US),
                min_tokens_per_second=min_tokens_per_second,
            )
        return self._answer(
            latency_targets.page(answer),
            lambda: latency_targets.require_verdict(answer),
            regions=regions,
            fields=fields,
        )

    @contextmanager
    def _client(self) -> Iterator[ReadClient]:
        """A connection per question, with the identity that its file has now: a command may have renewed it."""
        with ReadClient(self.collector.reread(), timeout_us=self.timeout_us) as client:
            yield client

    def _answer(
        self,
        page: Page[Row],
        require: Callable[[], None] = lambda: None,
        *,
        shown: Sequence[Page[Any]] = (),
        none: str = "",
        regions: tuple[str, ...] = (),
        fields: tuple[str, ...] = (),
    ) -> Answer:
        """The answer of a page, or of other pages to show; an error of `require` is a note, if anything is shown."""
        chosen: Page[Any] = select_fields(page, fields) if fields else page
        document = json.document(chosen)
        texts = [markdown.whole(one, RenderOptions()) for one in ((chosen,) if fields or not shown else shown)]
        try:
            require()
        except ClientError as error:
            note = error
            if isinstance(error, InsufficientError):
                note = explain_absence(error, self.collector.reread(), regions=regions, timeout_us=self.timeout_us)
            if not any(texts):
                raise note from error
            document |= {"note": str(note), "hint": note.hint}
            texts.append(described(note, prefix="note: "))
        return Answer(text="\n".join(filter(None, texts)) or none, document=document)


def described(error: IsochroneError, *, prefix: str = "") -> str:
    """The sentence of an error and its hint, on a line each."""
    return "\n".join([f"{prefix}{error}", *([f"hint: {error.hint}"] if error.hint else ())])


def _selection(window: str, regions: tuple[str, ...], targets: tuple[str, ...]) -> Selection:
    return Selection(window=parse_window(window), regions=regions, targets=targets)


_INSTRUCTIONS = (
    "Isochrone measures LLM APIs from several regions, and states how certain each number is. Regions and targets may "
    "be given by short names; an unknown one is an error that names the nearest. In structured content, durations are "
    "in microseconds (_us), instants are RFC 3339 (_at), and prices are US dollars per million tokens; null is "
    "unknown, never zero. Undecided means that more measurements are needed, not that there is no difference. Name "
    "regions, targets or fields to keep an answer short."
)
_READ_ONLY = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)


class Document(TypedDict):
    """The JSON document of an answer, as the command prints it; the schema names the fields besides the rows."""

    schema: str
    rows: list[dict[str, Any]]


def serve(questions: Questions) -> None:
    """Answer until standard input ends."""
    ranked = (questions.leaderboard, questions.diff, questions.routes)
    others = (questions.explain, questions.status, questions.incidents, questions.estimate)
    tools = [_tool(question) for question in (*ranked, *others)]
    server = MCPServer("isochrone", instructions=_INSTRUCTIONS, version=__version__, tools=tools, log_level="WARNING")
    server.run("stdio")


def _tool(question: Callable[..., Answer]) -> Tool:
    """The tool of a question. An input that it does not have is an error: the SDK would ignore a misspelt one."""

    @wraps(question)
    def ask(**inputs: Any) -> CallToolResult:  # noqa: ANN401  # any question's
        try:
            answer = question(**inputs)
        except IsochroneError as error:
            raise ToolError(described(error)) from error
        text = TextContent(type="text", text=answer.text)
        return CallToolResult(content=[text], structured_content=answer.document)

    signature = inspect.signature(question, eval_str=True)
    inputs = [_described(one, question.__name__) for one in signature.parameters.values()]
    result = Annotated[CallToolResult, Document]
    ask.__signature__ = signature.replace(parameters=inputs, return_annotation=result)  # type: ignore[attr-defined]  # inspect reads it
    tool = Tool.from_function(ask, description=inspect.getdoc(question), annotations=_READ_ONLY, structured_output=True)
    model = tool.fn_metadata.arg_model
    model.model_config["extra"] = "forbid"
    model.model_rebuild(force=True)
    tool.parameters = model.model_json_schema()
    return tool


def _described(one: inspect.Parameter, question: str) -> inspect.Parameter:
    kind, text = one.annotation, _INPUTS.get(f"{question}.{one.name}", _INPUTS[one.name])
    described: Any = Field(description=text)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        # In one place, because not every assistant follows a reference.
        described = WithJsonSchema({"type": "string", "enum": [choice.value for choice in kind], "description": text})
    return one.replace(annotation=Annotated[kind, described])
