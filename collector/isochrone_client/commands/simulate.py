"""`isochrone simulate`: the recorded rounds under other routing policies."""

import click

from isochrone_client import terminal
from isochrone_client.client import ObservatoryClient
from isochrone_client.commands import options
from isochrone_client.pages import simulations
from isochrone_client.terminal import Output
from isochrone_wire.answers import Selection

_STATIC = "static"
_EXAMPLES = (
    "isochrone simulate --window 1h",
    "isochrone simulate --region us-east-2 --target 'kimi*' --target '*v4-pro' --policy race:2 --policy fallback:200ms",
    "isochrone simulate --target '*b' --policy static:glm --policy routed --policy static:qwen3.5-397b",
)


@click.command("simulate", epilog=options.example(*_EXAMPLES))
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="POLICY",
    help="static, static:TARGET, nearest, routed, race:K or fallback:MS. Can be given several times; "
    "without a static one, static is put first.  [default: static, nearest, routed, race:2 and fallback:200]",
)
@options.selecting
@options.estimand
def simulate(
    *,
    client: ObservatoryClient,
    output: Output,
    selection: Selection,
    policies: tuple[str, ...],
) -> None:
    """Replay the recorded rounds under other routing policies.

    The targets are the members, which can replace each other. Every policy gets the same rounds: those in which each
    member was probed from that region. No policy uses later rounds.

    \b
    static:TARGET  always this one; static: the best one over all regions
    nearest        per region the best one of the first rounds
    routed         the best one, replaced only by a significantly and noticeably
                   better one
    race:K         the K best so far at once; the first token wins
    fallback:MS    the best so far, and the second one, too, if there is no token
                   after MS milliseconds
    """
    answer = client.simulate(selection, policies=_with_reference(policies))
    terminal.write(simulations.page(answer), output)
    simulations.require_rounds(answer)


def _with_reference(policies: tuple[str, ...]) -> tuple[str, ...]:
    """The policies, with a static one first as the reference; none if none is named."""
    if not policies or any(policy.strip().startswith(_STATIC) for policy in policies):
        return policies
    return (_STATIC, *policies)
