"""Command lines of all programs: the group of commands, its errors and exit codes, common options.

A program declares a table of `Entry`s; a command's module is imported when the command is called, so that `--help` and
completion are quick. An error ends a command with `error: …` and `hint: …` on stderr and an exit code:

    0 ok    1 failed    2 usage    3 unreachable    4 undecided or insufficient data, with --exit-code only
    5 a limit of `isochrone-agent probe` is not kept    130 interrupted by Ctrl-C
"""

import gc
import io
import json
import os
import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from itertools import groupby
from typing import Any, NamedTuple, TextIO, TypeVar, cast

import click

from isochrone_wire.errors import IsochroneError
from isochrone_wire.text import did_you_mean, printable, printable_json, same_name, unknown

_HELP_WIDTH = 78
_PIPED_WIDTH = 100

Function = TypeVar("Function", bound=Callable[..., Any])

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
# Newer versions of click raise it where older ones print the help and exit.
_NO_ARGUMENTS: type[click.ClickException] = getattr(click.exceptions, "NoArgsIsHelpError", click.FileError)
_SHELLS = ("bash", "zsh", "fish")
_INTERRUPTED = 130


class Entry(NamedTuple):
    """A command's place, `module:attribute`, and its line in the list of the commands of a topic."""

    place: str
    help: str
    topic: str = "Commands"

    def load(self) -> click.Command:
        """Import the command."""
        module, _, attribute = self.place.partition(":")
        with _ended_by_interrupt(), _uncollected():
            return cast(click.Command, getattr(import_module(module), attribute))


class CommandGroup(click.Group):
    """A group that imports its commands on demand and prints errors as a sentence, a hint and an exit code."""

    def __init__(self, *arguments: Any, entries: Mapping[str, Entry] | None = None, **more: Any) -> None:  # noqa: ANN401  # click's signature
        super().__init__(*arguments, **more)
        self.entries = dict(entries or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands in the order of the table."""
        return [*self.entries, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command of that name."""
        entry = self.entries.get(cmd_name)
        return entry.load() if entry else super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click, with the nearest name of the table for an unknown command."""
        name, known = args[0], [*self.entries, *self.commands]
        if not (name.startswith("-") or name in known or ctx.resilient_parsing):
            raise click.UsageError(f"No such command {name!r}{did_you_mean(name, known)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with the help of the table, without importing them."""
        if not self.entries:
            super().format_commands(ctx, formatter)
        width = max(map(len, self.entries), default=0)
        for topic, listed in groupby(self.entries.items(), key=lambda pair: pair[1].topic):
            with formatter.section(topic):
                formatter.write_dl([(name.ljust(width), entry.help) for name, entry in listed])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT002  # click's signature
        **extra: Any,  # noqa: ANN401  # click's signature
    ) -> Any:  # noqa: ANN401  # click's signature
        """Run a command and exit."""
        run: Callable[[], Any] = partial(super().main, args, prog_name, complete_var, standalone_mode=False, **extra)
        if not standalone_mode:
            return run()
        if sys.stdout is None:  # as `>&-` leaves it
            print_error("cannot write to standard output: it is closed")
            sys.exit(1)
        _tolerate_any_encoding()
        try:
            code = run()
        except IsochroneError as error:
            print_error(str(error), error.hint)
            code = error.exit_code
        except _NO_ARGUMENTS as error:
            # Its message is the group's help.
            error.show()
            code = error.exit_code
        except click.ClickException as error:
            print_error(*_in_lower_case(error))
            code = error.exit_code
        except click.Abort as error:
            code = _INTERRUPTED if isinstance(error.__cause__, KeyboardInterrupt) else 1
            if code != _INTERRUPTED:
                print_error("aborted")
        except OSError as error:
            if not _is_of_click(error):
                raise
            print_error(f"cannot write to standard output: {error.strerror}")
            code = 1
        _discard_unwritten()
        gc.freeze()  # or the end of the interpreter begins with a collection
        sys.exit(code if isinstance(code, int) else 0)


def print_error(sentence: str, hint: str = "", *, prefix: str = "error") -> None:
    """Print `error: …` and `hint: …` on stderr, without control characters: a sentence may quote another machine."""
    first, *more = (printable(line) for line in sentence.split("\n"))
    texts = (f"{prefix}: {first}", *more, *([f"hint: {hint}"] if hint else ()))
    for line in "\n".join(texts).split("\n"):
        click.echo(fit_terminal(line), err=True)


def print_json(document: object, *, indent: int | None = 2) -> None:
    """Print JSON with its text as it is, but for control characters."""
    click.echo(printable_json(json.dumps(document, indent=indent, ensure_ascii=False)))


def fit_terminal(line: str) -> str:
    """Fold a line for a terminal between words; a line with a command stays whole, so that it can be copied."""
    if not sys.stderr.isatty() or "isochrone" in line:
        return line
    return textwrap.fill(line, terminal_width(sys.stderr), break_long_words=False, break_on_hyphens=False)


def terminal_width(stream: TextIO) -> int:
    """The columns of `stream`: COLUMNS if it is set, else those of the terminal, else 100."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or _PIPED_WIDTH
    except (OSError, ValueError):  # no terminal; no file; closed
        return _PIPED_WIDTH


def exit_codes(*, usage: str = "usage or settings", failed: str = "failed", **more: str) -> str:
    """The end of a program's help: what each exit code means there; `more` are further ones as `_3="…"`."""
    codes = {"0": "ok", "1": failed, "2": usage, **{name.removeprefix("_"): text for name, text in more.items()}}
    # The backspace keeps click from filling the lines.
    lines = (
        textwrap.fill(text, _HELP_WIDTH, initial_indent=f"  {code}  ", subsequent_indent="     ")
        for code, text in codes.items()
    )
    return "\b\nExit codes:\n" + "\n".join(lines)


def example(*lines: str) -> str:
    """The end of a command's help: lines to copy into a shell."""
    # The backspace keeps click from filling the lines.
    return "\b\n" + "\n".join(["Example:", *(f"  {line}" for line in lines)])


class Seconds(click.FloatRange):
    """A number of seconds within limits."""

    name = "number of seconds"


class Choice(click.Choice):  # type: ignore[type-arg]  # older versions of click have no parameter
    """One of several names, with `-` or `_` and in any case; the nearest one is suggested for an unknown name."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401  # click's signature
        """The name among the choices."""
        found = same_name(str(value), self.choices)
        if found is None:
            self.fail(unknown("value", str(value), self.choices), param, ctx)
        return found


def output_option(*formats: str, **more: Any) -> Callable[[Function], Function]:  # noqa: ANN401  # as click.option
    """`--output FORMAT` and `-o`; the first format is the default unless `more` names one."""
    settings: dict[str, Any] = {"default": formats[0], "show_default": True, "help": "Format of the answer."} | more
    return click.option("--output", "-o", type=Choice(formats), **settings)


table_or_json = output_option("table", "json")
log_format_option = click.option(
    "--log-format",
    envvar="ISOCHRONE_LOG_FORMAT",
    type=Choice(["auto", "console", "json"]),
    default="auto",
    show_default=True,
    help="Format of the log on stderr; auto is console on a terminal, else json.",
)


def completion_command(program: str) -> click.Command:
    """`PROGRAM completion SHELL`; its example names the file that each shell reads."""
    places = (
        ("bash", f"~/.local/share/bash-completion/completions/{program}"),
        ("zsh", f"~/.zfunc/_{program}"),
        ("fish", f"~/.config/fish/completions/{program}.fish"),
    )
    lines = [f"{program} completion {shell} > {place}" for shell, place in places]

    @click.command("completion", epilog=example(*lines), short_help="Print the completion script of a shell.")
    @click.argument("shell", type=Choice(_SHELLS))
    @click.pass_context
    def completion(context: click.Context, *, shell: str) -> None:
        """Print the completion script of a shell."""
        from click.shell_completion import get_completion_class  # noqa: PLC0415  # not loaded for other commands

        completer = get_completion_class(shell)
        assert completer is not None, "click completes each of the shells offered"
        variable = f"_{program}_COMPLETE".replace("-", "_").upper()
        click.echo(completer(context.find_root().command, {}, program, variable).source())

    return completion


@contextmanager
def _ended_by_interrupt() -> Iterator[None]:
    """Let Ctrl-C end the process at once, without an exception, which an import can lose: the command would run on."""
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not is_default or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Import modules without garbage collections, a tenth of the time of a command, also of later ones."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _is_of_click(error: OSError) -> bool:
    """True if a write of click failed: it prints, and reports its other errors as a `ClickException`."""
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    return innermost is not None and innermost.tb_frame.f_globals["__name__"].startswith("click.")


def _tolerate_any_encoding() -> None:
    """Replace characters that the terminal's encoding lacks, such as dashes and dots, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _discard_unwritten() -> None:
    """Discard what stdout did not accept: Python would try again at exit, and fail with a message of its own."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _in_lower_case(error: click.ClickException) -> tuple[str, str]:
    sentence, context = error.format_message(), getattr(error, "ctx", None)
    return sentence[:1].lower() + sentence[1:], f"{context.command_path} --help" if context else ""
