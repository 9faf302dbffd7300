import asyncio
import json
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from isochrone_common.cli.command_line import (
    CONTEXT,
    CommandGroup,
    completion_command,
    example,
    exit_codes,
    print_json,
    table_or_json,
)
from isochrone_common.cli.service import stop_event
from isochrone_sim import tables
from isochrone_sim.certificates import self_signed as make_certificate
from isochrone_sim.faults import FAULTS
from isochrone_sim.settings import (
    DEFAULT_LISTEN,
    Settings,
    gather_world,
    known_region,
    parse_certificate,
    parse_listens,
    with_episodes,
    with_round_trips,
)
from isochrone_sim.worldfile import EXAMPLE
from isochrone_wire import __version__

_SERVE_EXAMPLES = (
    "isochrone-sim serve",
    "isochrone-sim serve --self-signed",
    "isochrone-sim serve --faults --listen us-east-2=127.0.0.1:8081 --listen ap-southeast-1=127.0.0.1:8082",
    "isochrone-sim serve --episode tencent us-east-2 400 75 180",
    "isochrone-sim serve --fault-episode tencent us-east-2 500 75 180",
)
_WORLD_EXAMPLES = (
    "isochrone-sim world",
    "isochrone-sim world --truth-differential us-east-2 ap-southeast-1",
    "isochrone-sim world --example > my-world.json",
)
_EPILOG = f"{exit_codes(usage='usage, settings or world file')}\n\n{example('isochrone-sim serve')}"


@click.group(cls=CommandGroup, context_settings=CONTEXT, epilog=_EPILOG)
@click.version_option(__version__, prog_name="isochrone-sim", message="%(prog)s %(version)s")
def cli() -> None:
    """Simulated LLM providers with known timing, for demos, tests and calibration."""


cli.add_command(completion_command("isochrone-sim"))


_FILE = click.Path(path_type=Path, dir_okay=False)
_world_option = click.option(
    "--world",
    "world_file",
    type=_FILE,
    help="A world file, JSON or TOML; `isochrone-sim world --example` prints an example.",
)
_faults_option = click.option("--faults", is_flag=True, help="Add a model fault-NAME for every fault.")


@cli.command(short_help="Run the simulated providers.", epilog=example(*_SERVE_EXAMPLES))
@click.option(
    "--listen",
    "listens",
    multiple=True,
    default=[DEFAULT_LISTEN],
    show_default=True,
    metavar="[REGION=]HOST:PORT",
    help="An address to listen on, and the region of its clients; port 0 selects a free port. Repeatable.",
)
@_world_option
@_faults_option
@click.option(
    "--api-key",
    envvar="ISOCHRONE_SIM_API_KEY",
    metavar="KEY",
    help="Require this API key.  [env: ISOCHRONE_SIM_API_KEY]",
)
@click.option("--tls-cert", type=_FILE, help="Use TLS with this certificate (PEM, with its chain).")
@click.option("--tls-key", type=_FILE, help="The private key of --tls-cert (PEM).")
@click.option("--self-signed", is_flag=True, help="Use TLS with a self-signed certificate for 127.0.0.1 and localhost.")
@click.option(
    "--truth",
    "truth_file",
    type=_FILE,
    help="Append the ground truth to this file, one JSON line per request.",
)
@click.option(
    "--episode",
    "episodes",
    type=(str, str, click.FloatRange(0, 600_000), click.FloatRange(0), click.FloatRange(0)),
    multiple=True,
    metavar="PROVIDER REGION MS AFTER FOR",
    help="Delay the first tokens of PROVIDER in REGION by MS milliseconds, starting AFTER seconds from now, for FOR "
    "seconds. Repeatable.",
)
@click.option(
    "--fault-episode",
    "fault_episodes",
    type=(str, str, click.Choice(list(FAULTS)), click.FloatRange(0), click.FloatRange(0)),
    multiple=True,
    metavar="PROVIDER REGION FAULT AFTER FOR",
    help="Give all models of PROVIDER the FAULT, one of `isochrone-sim faults`, in REGION, starting AFTER seconds from "
    "now, for FOR seconds. Repeatable.",
)
@click.option(
    "--round-trip",
    "round_trips",
    type=(str, click.FloatRange(0, 60_000)),
    multiple=True,
    metavar="REGION MS",
    help="The network between the clients of REGION and this simulator takes MS milliseconds for a round trip; first "
    "tokens are sent that much earlier, so that they arrive on time. Repeatable.",
)
@click.option("--allow-remote", is_flag=True, help="Allow addresses that other machines can reach.")
@click.option("--log-requests", is_flag=True, help="Log one line per request; reduces precision under load.")
def serve(*, world_file: Path | None, faults: bool, self_signed: bool, **values: Any) -> None:  # noqa: ANN401  # options of many kinds
    """Run the simulated providers: APIs in five dialects that send every token at a planned instant.

    Once ready, it prints its endpoints: a table on a terminal, otherwise one line of JSON:
    {"ready": true, "endpoints": {REGION: BASE_URL}}, plus "ca", the file to trust, with --self-signed. GET /truth
    returns the ground truth as JSON lines. Stop it with SIGTERM or Ctrl-C.

    \b
    Every model answers at all of these paths, independent of its own dialect:
      POST /v1/chat/completions    openai-chat
      POST /v1/responses           openai-responses
      POST /v1/messages            anthropic
      POST /v1beta/models/MODEL:streamGenerateContent?alt=sse    gemini
      POST /v2/chat                cohere
    """
    from isochrone_common.cli.service import set_up_logs  # noqa: PLC0415  # as above
    from isochrone_sim.eventloop import new_event_loop  # noqa: PLC0415  # not loaded for `--help`

    set_up_logs()
    now_at, episodes = time.time_ns() // 1000, (*values["episodes"], *values["fault_episodes"])
    world = with_episodes(gather_world(world_file, faults=faults), episodes, now_at=now_at)
    world = with_round_trips(world, values["round_trips"])
    certificate = parse_certificate(values["tls_cert"], values["tls_key"], self_signed=self_signed)
    listens = parse_listens(values["listens"], world, allow_remote=values["allow_remote"])
    with ExitStack() as stack:
        if self_signed:
            certificate = make_certificate(
                Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="isochrone-sim-")))
            )
        settings = Settings(
            world=world,
            listens=listens,
            api_key=values["api_key"] or None,
            certificate=certificate,
            truth_file=values["truth_file"],
            log_requests=values["log_requests"],
        )
        runner = stack.enter_context(asyncio.Runner(loop_factory=new_event_loop))
        runner.run(_serve_until_signalled(settings, ca=str(certificate.chain) if certificate and self_signed else None))


@cli.command(short_help="Show the timing of the simulated models.", epilog=example(*_WORLD_EXAMPLES))
@_world_option
@_faults_option
@click.option(
    "--truth-differential",
    nargs=2,
    metavar="BASELINE REGION",
    help="Show the true difference of two regions for every model: REGION minus BASELINE.",
)
@click.option("--example", is_flag=True, help="Print an example world file.")
@table_or_json
def world(
    *, world_file: Path | None, faults: bool, truth_differential: tuple[str, str] | None, example: bool, output: str
) -> None:
    """Show the simulated models: time to first token by region, tokens per second, prices, and their sources."""
    if example:
        click.echo(json.dumps(EXAMPLE, indent=2))
        return
    shown = gather_world(world_file, faults=faults)
    if truth_differential:
        baseline, region = (known_region(name, shown) for name in truth_differential)
        document = tables.differentials_json(shown, baseline, region)
        _show(output, tables.differential_table(shown, baseline, region), document)
    else:
        _show(output, tables.world_table(shown), tables.world_json(shown))


@cli.command(short_help="List the faults.", epilog=example("isochrone-sim faults"))
@table_or_json
def faults(*, output: str) -> None:
    """List the faults: failures, and unusual but valid behaviour.

    Each fault is a model `fault-NAME` with `serve --faults`, and a value of `fault` in a world file.
    """
    _show(output, tables.faults_table(), tables.faults_json())


def main() -> None:
    """The entry point `isochrone-sim`."""
    cli(prog_name="isochrone-sim")


def _show(output: str, table: str, document: dict[str, Any]) -> None:
    if output == "json":
        print_json(document)
    else:
        click.echo(table)


async def _serve_until_signalled(settings: Settings, *, ca: str | None) -> None:
    from isochrone_sim.server.serve import serve as serve_world  # noqa: PLC0415  # not loaded for `--help`

    def print_ready(endpoints: dict[str, str]) -> None:
        if sys.stdout.isatty():
            click.echo(tables.endpoints_table(endpoints, next(iter(settings.world.models)), ca=ca))
        else:
            click.echo(json.dumps({"ready": True, "endpoints": endpoints} | ({"ca": ca} if ca else {})))
        sys.stdout.flush()

    await serve_world(settings, ready=print_ready, stop=stop_event())
