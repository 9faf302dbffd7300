"""`isochrone samples`: single probes, and on request those still to come."""

import time
from collections.abc import Callable

import click

from isochrone_client import terminal
from isochrone_client.address import Whom
from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_client.commands import options
from isochrone_client.pages import samples as sample_pages
from isochrone_client.window import parse_window
from isochrone_wire.answers import Selection, StoredSample

_POLL_SECONDS = 1.0
# How many of the newest samples a poll looks at: what arrives within a second must fit.
_POLL_LIMIT = 1000


@click.command("samples", epilog=options.example("isochrone samples --target 'openai/*' --limit 50"))
@click.option(
    "--limit", type=click.IntRange(min=1, max=10_000), default=20, show_default=True, help="How many of the newest."
)
@click.option("--follow", "-f", is_flag=True, help="Go on with new ones until interrupted; json gives one per line.")
@options.regions
@options.targets
@options.window
@options.reading
def samples(
    *,
    collector: Whom,
    timeout_us: int,
    output: str,
    window: str,
    regions: tuple[str, ...],
    targets: tuple[str, ...],
    limit: int,
    follow: bool,
) -> None:
    """Show single probes, failed ones too, the newest last."""

    def selected() -> Selection:
        return Selection(window=parse_window(window, now_at=now_at()), regions=regions, targets=targets)

    with ObservatoryClient(collector, timeout_us=timeout_us) as client:
        if follow:
            _follow(client, selected, limit=limit, output=output)
        else:
            _show(client, selected(), limit=limit, output=output)


def _show(client: ObservatoryClient, selection: Selection, *, limit: int, output: str) -> None:
    newest = client.list_samples(selection, limit=limit)
    terminal.write(sample_pages.page(newest, window=selection.window, now_at=now_at()), output)
    sample_pages.require_samples(newest, window=selection.window)


def _follow(client: ObservatoryClient, selected: Callable[[], Selection], *, limit: int, output: str) -> None:
    """Look once a second and write what was not there before; an interrupt is the ordinary end."""
    say = terminal.begin
    seen: tuple[StoredSample, ...] = ()
    try:
        while True:
            selection = selected()
            newest = client.list_samples(selection, limit=max(limit, _POLL_LIMIT))
            fresh = sample_pages.unseen(newest, seen)
            shown = fresh if seen else fresh[-limit:]
            say(sample_pages.page(shown, window=selection.window, now_at=now_at()), output)
            say, seen = terminal.go_on, newest
            time.sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        return
