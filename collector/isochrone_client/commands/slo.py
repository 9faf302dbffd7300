import click

from isochrone_client import terminal
from isochrone_client.client import ReadClient
from isochrone_client.commands import options
from isochrone_client.pages import latency_targets, simulations
from isochrone_client.terminal import Output
from isochrone_common.cli.command_line import Choice
from isochrone_wire.answers import Selection
from isochrone_wire.model import SECOND_US


@options.command(
    "slo",
    "isochrone slo --region us-east-2 --window 24h",
    "isochrone slo --use voice --by hour --window 7d",
    "isochrone slo --answer 500 --limit 8 --min-speed 30",
)
@click.option(
    "--use",
    "uses",
    multiple=True,
    metavar="USE",
    help="Only this use: edge, translation, voice, code, chat, web, inline, step, agent. Can be given several times.",
)
@click.option("--by", type=Choice(["hour"]), help="A row for each hour of the day (UTC).")
@click.option(
    "--answer",
    "answer_tokens",
    type=click.IntRange(1, 1_000_000),
    metavar="TOKENS",
    help="Limit an answer of this length, estimated from first token and speed of each request.",
)
@options.limit_option("This limit in place of the uses: on the answer with --answer, else on the first token.")
@click.option(
    "--min-speed",
    type=click.FloatRange(min=0, min_open=True, max=1e6),
    metavar="TOKENS/S",
    help="Requests below this speed are too slow.",
)
@options.selecting
@options.estimand
def slo(
    *,
    client: ReadClient,
    output: Output,
    selection: Selection,
    uses: tuple[str, ...],
    by: str | None,
    answer_tokens: int | None,
    limit_s: float | None,
    min_speed: float | None,
) -> None:
    """Show which targets are fast enough for which use, per region.

    A target meets the latency target of a use when 95 % of all planned requests are answered within its limit: requests
    that failed, timed out or were throttled, and rounds behind a request that hangs, are not. That is decided on the
    95 % interval of this share: yes if all of it is at least 95 %, no if all of it is below, else maybe; below 59
    samples it is unknown. With one --use the share and the percentile are shown. The objective of a route is decided in
    the same way: see isochrone routes.
    """
    if uses and limit_s is not None:
        raise click.UsageError("--limit takes the place of the uses; give either --use or --limit")
    answer = client.get_latency_budgets(
        selection,
        uses=uses,
        by=by or "",
        answer_tokens=answer_tokens or 0,
        limit_us=round((limit_s or 0) * SECOND_US),
        min_tokens_per_second=min_speed or 0.0,
    )
    terminal.write(latency_targets.page(answer), output)
    latency_targets.require_verdict(answer)


@options.command(
    "simulate",
    "isochrone simulate --window 1h",
    "isochrone simulate --region us-east-2 --target 'kimi*' --target '*v4-pro' --policy race:2",
    "isochrone simulate --target '*b' --policy static:glm --policy routed --policy static:qwen3.5-397b",
)
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
def simulate(*, client: ReadClient, output: Output, selection: Selection, policies: tuple[str, ...]) -> None:
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
    if policies and not any(policy.strip().startswith("static") for policy in policies):
        policies = ("static", *policies)  # the reference
    answer = client.simulate(selection, policies=policies)
    terminal.write(simulations.page(answer), output)
    simulations.require_replay(answer)
