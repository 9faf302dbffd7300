"""The MCP server on standard input and output: a tool per question."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, TypedDict

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult, TextContent, ToolAnnotations

from isochrone_client.errors import ClientError
from isochrone_client.mcp.questions import Answer, Questions, described
from isochrone_wire import __version__

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


def make_server(questions: Questions) -> MCPServer:
    """A server whose tools are the questions."""
    asked = (
        questions.leaderboard,
        questions.diff,
        questions.routes,
        questions.explain,
        questions.incidents,
        questions.estimate,
    )
    return MCPServer(
        "isochrone",
        instructions=_INSTRUCTIONS,
        version=__version__,
        tools=[_tool(question) for question in asked],
        log_level="WARNING",
    )


def serve(questions: Questions) -> None:
    """Answer until standard input ends."""
    make_server(questions).run("stdio")


def _tool(question: Callable[..., Answer]) -> Tool:
    """The tool of a question. An input that it does not have is an error: the SDK would ignore a misspelt one."""
    tool = Tool.from_function(
        _asked(question), description=inspect.getdoc(question), annotations=_READ_ONLY, structured_output=True
    )
    inputs = tool.fn_metadata.arg_model
    inputs.model_config["extra"] = "forbid"
    inputs.model_rebuild(force=True)
    tool.parameters = inputs.model_json_schema()
    return tool


def _asked(question: Callable[..., Answer]) -> Callable[..., CallToolResult]:
    """The question with the result and the errors of a tool."""

    @wraps(question)
    def ask(**inputs: Any) -> CallToolResult:  # noqa: ANN401  # any question's
        try:
            answer = question(**inputs)
        except ClientError as error:
            raise ToolError(described(error)) from error
        text = TextContent(type="text", text=answer.text)
        return CallToolResult(content=[text], structured_content=answer.document)

    signature = inspect.signature(question, eval_str=True)
    ask.__signature__ = signature.replace(return_annotation=Annotated[CallToolResult, Document])  # type: ignore[attr-defined]  # inspect reads it
    return ask
