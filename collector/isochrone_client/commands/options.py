import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import click
from click.core import ParameterSource

from isochrone_client import completion
from isochrone_client.address import DEFAULT_COLLECTOR, Collector, resolve_collector
from isochrone_client.configuration import defaults_for
from isochrone_client.errors import ClientError, InsufficientError, MissingExtraError
from isochrone_client.render import OUTPUTS
from isochrone_client.terminal import Output, repeat
from isochrone_client.window import parse_window
from isochrone_common.cli.command_line import Choice, Seconds, output_option, print_error
from isochrone_common.cli.command_line import example as example  # noqa: PLC0414  # every command's module has this one at hand
from isochrone_wire.answers import Metric, Selection, Window
from isochrone_wire.durations import SECOND_US
from isochrone_wire.text import ESTIMAND_SENTENCE

Function = TypeVar("Function", bound=Callable[..., Any])


def command(name: str, *examples: str) -> Callable[[Function], click.Command]:
    """A command with examples at the end of its help."""
    return lambda function: click.command(name, epilog=example(*examples))(repeating(function))


def repeating(function: Function) -> Function:
    """With `--watch`, call the whole command again and again, so that each answer is of a window of its own."""

    @functools.wraps(function)
    def wrapped(*arguments: Any, **given: Any) -> Any:  # noqa: ANN401  # any command's
        show = functools.partial(function, *arguments, **given)
        every_s = given.get("watch_s")
        return show() if every_s is None else repeat(show, every_s=every_s)

    return cast("Function", wrapped)


def _names(_context: click.Context, _parameter: click.Parameter, text: str | None) -> tuple[str, ...]:
    names = tuple(filter(None, (name.strip() for name in (text or "").split(","))))
    if text is not None and not names:
        raise click.BadParameter("no field is named; `--fields help` lists them")
    return names


def _apply_defaults(context: click.Context, _parameter: click.Parameter, collector: str | None) -> str | None:
    """Give the other options the defaults of the configuration, which depend on the collector's context."""
    if not context.resilient_parsing:
        defaults = defaults_for(collector)
        # The formats of a command that writes files have other names.
        types = [parameter.type for parameter in context.command.params if parameter.name == "output"]
        if not any(isinstance(of, click.Choice) and tuple(of.choices) == OUTPUTS for of in types):
            defaults.pop("output", None)
        context.default_map = defaults
    return collector


_collector = click.option(
    "--collector",
    envvar="ISOCHRONE_COLLECTOR",
    show_envvar=True,
    is_eager=True,
    callback=_apply_defaults,
    shell_complete=completion.contexts,
    metavar="HOST:PORT|CONTEXT",
    help="The collector to ask, also unix:PATH, or the name of a context.  "
    f"[default: the current context, else the collector joined, else {DEFAULT_COLLECTOR}]",
)
_identity = click.option(
    "--identity",
    envvar="ISOCHRONE_IDENTITY",
    show_envvar=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Identity file, as `isochrone join` wrote it.  "
    "[default: the context's, else ~/.config/isochrone/identity.json if present]",
)
_timeout = click.option(
    "--timeout",
    "timeout_us",
    type=Seconds(min=0.1, max=3600),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    callback=lambda _context, _parameter, seconds: round(seconds * SECOND_US),
    help="How long to wait for an answer.",
)
_output = output_option(*OUTPUTS, help="table and markdown are for people; json and csv hold every field.")
_fields = click.option(
    "--fields",
    callback=_names,
    metavar="NAME,…",
    help="Only these fields, in this order, by their names in json or csv; `--fields help` lists them.",
)
_wide = click.option("--wide", is_flag=True, help="Every column of a table, however long its lines are.")
raw = click.option(
    "--raw",
    is_flag=True,
    help="Texts in csv as they are. Otherwise one that a spreadsheet would compute begins with an apostrophe, and "
    "control characters are spaces; always on a terminal.",
)
_exit_code = click.option(
    "--exit-code",
    is_flag=True,
    help="Exit with 4 if the answer is undecided or the data are insufficient; without it that is 0.",
)

_window = click.option(
    "--window",
    default="24h",
    show_default=True,
    metavar="RANGE",
    help="15m, 24h, 7d, today, last week, 2026-11, 2026-11-01.. or 2026-11-01..2026-11-08 (the end not included; UTC).",
)
targets = click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="GLOB",
    shell_complete=completion.targets,
    help="Only targets with such a name, kimi-k2.5 or 'qwen/*'. Can be given several times.",
)


def region_option(name: str, *names: str, **more: Any) -> Callable[[Function], Function]:  # noqa: ANN401  # as click.option
    """An option that takes a region, which a shell completes."""
    return click.option(name, *names, metavar="REGION", shell_complete=completion.regions, **more)


regions = region_option("--region", "regions", multiple=True, help="Only this region. Can be given several times.")
baseline = region_option(
    "--baseline", default="", help="The region to compare with.  [default: the configuration's, else the plan's]"
)
route = click.option("--route", default="", metavar="ROUTE", help="Only this route of the plan.")


def metric_option(description: str, metrics: Iterable[Metric] = Metric) -> Callable[[Function], Function]:
    """Return `--metric` with the choice of `metrics`."""
    return click.option(
        "--metric",
        type=Choice([metric.value for metric in metrics]),
        default=Metric.TTFT.value,
        show_default=True,
        help=description,
    )


def limit_option(description: str) -> Callable[[Function], Function]:
    """Return `--limit` in seconds, the parameter `limit_s`."""
    return click.option("--limit", "limit_s", type=Seconds(min=0.001, max=86_400), metavar="SECONDS", help=description)


metric = metric_option("The metric to compare.")
_watch = click.option(
    "--watch",
    "watch_s",
    type=Seconds(min=1, max=86_400),
    is_flag=False,
    flag_value=10.0,
    metavar="[SECONDS]",
    help="Refresh every so many seconds (10 without a number) until Ctrl-C; json prints one document per line.",
)


def file(**more: Any) -> Callable[[Function], Function]:  # noqa: ANN401  # as click.option
    """`--file FILE` as the parameter `path`."""
    return click.option("--file", "path", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True), **more)


def file_format(output: str | None, path: Path, format_of: Mapping[str, str], *, default: str) -> str:
    """The format to write: `output`, else that of the file's ending in `format_of`, else the `default` of a name
    without an ending.

    Raises `click.UsageError` for an ending that names no format, and for one that contradicts `output`.
    """
    ending = path.suffix.lower()
    stated = format_of.get(ending)
    if output is not None:
        if stated not in (None, output):
            raise click.UsageError(f"--output {output} contradicts {path.name}, which ends in {ending}; change either")
        return output
    if ending and stated is None:
        known = ", ".join(format_of)
        raise click.UsageError(
            f"{path.name} ends in {ending}, which names no format; end it in {known}, or choose a format with --output"
        )
    return stated or default


@contextmanager
def needing(command: str, *packages: str, extra: str) -> Iterator[None]:
    """Import these packages of an extra in the block. Raises `MissingExtraError` if one is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in packages:
            raise
        sentence = f"{command} needs the package {package}, which is not installed"
        raise MissingExtraError(sentence, hint=f"pip install 'isochrone[{extra}]'") from error


def _adapted(function: Function, adapt: Callable[..., dict[str, Any]]) -> Function:
    """The function with what `adapt` makes of its own parameters in their place."""
    names = tuple(inspect.signature(adapt).parameters)

    @functools.wraps(function)
    def wrapped(*arguments: Any, **given: Any) -> Any:  # noqa: ANN401  # any command's
        own = {name: given.pop(name) for name in names}
        return function(*arguments, **adapt(**own), **given)

    # A function with the parameters of a command is one, as far as the checker can see.
    return cast("Function", wrapped)


def addressing(function: Function) -> Function:
    """The collector of a command: `collector` (a `Collector`)."""

    def adapt(collector: str | None, identity: Path | None) -> dict[str, Any]:
        # A group whose subcommand follows asks nothing itself, so its help needs no identity that can be read.
        asks = click.get_current_context().invoked_subcommand is None
        return {"collector": resolve_collector(collector, identity) if asks else None}

    return _collector(_identity(_adapted(function, adapt)))


def window(function: Function) -> Function:
    """`--window`, the parameter `window`, as of now."""

    def adapt(window: str) -> dict[str, Any]:
        return {"window": parse_window(window)}

    return _window(_adapted(function, adapt))


def asking(function: Function) -> Function:
    """The collector and the patience of a command: those of `addressing`, and `timeout_us` (microseconds)."""
    return addressing(_timeout(function))


def printing(function: Function) -> Function:
    """The options of `asking`, and `output` (an `Output`)."""

    def adapt(output: str, fields: tuple[str, ...], wide: bool, raw: bool) -> dict[str, Any]:
        return {"output": Output(format=output, fields=fields, wide=wide, raw=raw)}

    return asking(_output(_fields(_wide(raw(_adapted(function, adapt))))))


def reading(function: Function) -> Function:
    """The options of every reading command: those of `printing`, and `--watch`."""

    def adapt(output: Output, watch_s: float | None) -> dict[str, Any]:
        return {"output": replace(output, repeated=watch_s is not None)}

    return _watch(printing(_adapted(function, adapt)))


def client(function: Function) -> Function:
    """A client of the collector, the parameter `client`, in place of `collector` and `timeout_us`."""

    @functools.wraps(function)
    def wrapped(*arguments: Any, collector: Collector | None, timeout_us: int, **more: Any) -> Any:  # noqa: ANN401  # any command's
        from isochrone_client.client import ReadClient  # noqa: PLC0415  # a help does without

        if collector is None:  # a subcommand follows
            return function(*arguments, client=None, **more)
        with ReadClient(collector, timeout_us=timeout_us) as opened:
            return function(*arguments, client=opened, **more)

    return cast("Function", wrapped)


def require_no_options(context: click.Context) -> None:
    """Refuse options before a subcommand, where they have no effect."""
    given = [name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if given:
        raise click.UsageError(f"write the options after {context.invoked_subcommand!r}", ctx=context)


def estimand(function: Function) -> Function:
    """State at the end of the help what the numbers are of."""
    function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n{ESTIMAND_SENTENCE}"
    return function


def verdict(function: Function) -> Function:
    """`--exit-code`: an `InsufficientError` is a note, and exit code 4 only on request, never with `--watch`."""

    @functools.wraps(function)
    def wrapped(*arguments: Any, exit_code: bool, **more: Any) -> Any:  # noqa: ANN401  # any command's
        output = more.get("output")
        repeated = isinstance(output, Output) and output.repeated
        if exit_code and repeated:
            raise click.UsageError("--exit-code does not go with --watch")
        try:
            return function(*arguments, **more)
        except InsufficientError as insufficient:
            error = _explained(insufficient, more)
            print_error(str(error), error.hint, prefix="note")
            return None if repeated else click.get_current_context().exit(error.exit_code if exit_code else 0)

    return _exit_code(cast("Function", wrapped))


def _explained(error: InsufficientError, options: Mapping[str, Any]) -> InsufficientError:
    """The error with the regions that lack samples, asked from the collector of these options."""
    from isochrone_client.absence import explain  # noqa: PLC0415  # few commands end so, and each would load its values

    regions = options["selection"].regions if "selection" in options else options.get("regions", ())
    return explain(error, options["collector"], regions=regions, timeout_us=options["timeout_us"])


def exporting(function: Function) -> Function:
    """`asking`, for a command that writes a file: an `InsufficientError` fails, with exit code 4 on request."""

    @functools.wraps(function)
    def wrapped(*arguments: Any, exit_code: bool, **more: Any) -> Any:  # noqa: ANN401  # any command's
        try:
            return function(*arguments, **more)
        except InsufficientError as insufficient:
            error = _explained(insufficient, more)
            if exit_code:
                raise error from None
            raise ClientError(str(error), hint=error.hint) from error

    help_text = "Exit with 4 if there is nothing to write; without it that is 1."
    return asking(click.option("--exit-code", is_flag=True, help=help_text)(cast("Function", wrapped)))


def selection(function: Function) -> Function:
    """The options that select samples: the parameter `selection`, up to now."""

    def adapt(window: Window, regions: tuple[str, ...], targets: tuple[str, ...]) -> dict[str, Any]:
        return {"selection": Selection(window=window, regions=regions, targets=targets)}

    return regions(targets(window(_adapted(function, adapt))))


def selecting(function: Function) -> Function:
    """The options of `selection`, `reading` and `verdict`, with a `client`."""
    return selection(reading(verdict(client(function))))
