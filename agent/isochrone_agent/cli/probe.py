import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import click

from isochrone_agent.cli import options, probe_report
from isochrone_agent.cli.probe_report import Burst, LinearFit, Verdict
from isochrone_agent.clock import now_at
from isochrone_agent.errors import SettingsError
from isochrone_agent.plan.credentials import Credential
from isochrone_agent.probe.prober import Prober
from isochrone_agent.probe.recording import Recorder
from isochrone_agent.probe.transport import tls_context
from isochrone_agent.settings import dial_options
from isochrone_common.cli.command_line import Choice, Seconds, example, print_json, table_or_json, terminal_width
from isochrone_common.dialects import DIALECTS
from isochrone_common.dialects.providers import CATALOGUE, Provider
from isochrone_wire.durations import parse_us
from isochrone_wire.json_format import to_json_value
from isochrone_wire.model import (
    DEFAULT_PROMPT,
    SECOND_US,
    ConnectionUse,
    Outcome,
    Sample,
    Target,
    Timeouts,
    Workload,
    target_id,
)
from isochrone_wire.text import aligned, base_url_problem, did_you_mean
from isochrone_wire.workloads import omit_problem, supported_efforts

CATALOGUE_SCHEMA = "isochrone.catalogue/1"
_OUTSIDE = Provider("", "", "", None)


@click.command("catalogue", epilog=example("isochrone-agent catalogue"))
@table_or_json
def catalogue_command(*, output: str) -> None:
    """List the providers and gateways that can be probed as NAME/MODEL, with the variable that holds their key."""
    if output == "json":
        print_json({"schema": CATALOGUE_SCHEMA, "providers": [asdict(provider) for provider in CATALOGUE.values()]})
        return
    rows = [(one.slug, one.dialect, one.key_env or "none needed", one.base_url) for one in CATALOGUE.values()]
    click.echo(aligned([("name", "dialect", "key variable", "base URL"), *rows]))
    click.echo(
        "\nProbe one with: isochrone-agent probe NAME/MODEL. Replace {placeholders} in a base URL with --base-url."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """The API and the model to probe. `provider` is empty outside the catalogue; `key_env` is `None` without a key."""

    provider: str
    model: str
    base_url: str
    dialect: str
    key_env: str | None

    def target(self, workload: Workload, omit: tuple[str, ...] = ()) -> Target:
        """Return the target with this workload, whose requests are without the fields in `omit`."""
        place: Any = {name: getattr(self, name) for name in ("provider", "model", "base_url", "dialect")}
        place |= {"workload": workload, "omit": omit}
        return Target(id=target_id(**place), name=self.model, **place)


def resolve_target_options(
    what: str | None, *, base_url: str | None, model: str | None, dialect: str | None, key_env: str | None
) -> TargetOptions:
    """Combine the entry of `what` (`provider/model`) with the options that override it. Raises `SettingsError`."""
    if what and model:
        hint = "use PROVIDER/MODEL (with --base-url for another address), or --model with --base-url"
        raise SettingsError(f"two models are named: {what} and {model}", hint=hint)
    provider, catalogue_model = _parse_catalogue_name(what) if what else (_OUTSIDE, "")
    options = TargetOptions(
        provider=provider.slug,
        model=model or catalogue_model,
        base_url=base_url or provider.base_url,
        dialect=dialect or provider.dialect,
        key_env=key_env or provider.key_env,
    )
    if not (options.model and options.base_url):
        hint = "PROVIDER/MODEL (see `isochrone-agent catalogue`), or --base-url and --model"
        raise SettingsError("no target is given", hint=hint)
    if problem := base_url_problem(options.base_url):
        hint = "a key is read from the environment variable in --key-env; see `isochrone-agent probe --help`"
        raise SettingsError(f"--base-url: {problem}", hint=hint)
    if "{" in options.base_url:
        hint = "set the complete URL with --base-url"
        raise SettingsError(f"{options.base_url} has a placeholder in braces", hint=hint)
    return options


def check_effort(options: TargetOptions, effort: str | None) -> None:
    """Raise `SettingsError` for a reasoning effort that the API has no way to request from this model."""
    known = supported_efforts(options.dialect, options.model)
    if effort is not None and known is not None and effort not in known:
        raise SettingsError(
            f"{options.model} does not support the effort {effort!r}", hint=f"use one of {', '.join(known)}"
        )


def _parse_catalogue_name(what: str) -> tuple[Provider, str]:
    slug, slash, model = what.partition("/")
    if not slash:
        raise SettingsError(f"{what!r} is not PROVIDER/MODEL", hint="for example groq/llama-3.3-70b-versatile")
    if slug not in CATALOGUE:
        sentence = f"unknown provider {slug!r}{did_you_mean(slug, CATALOGUE)}"
        raise SettingsError(sentence, hint="`isochrone-agent catalogue` lists them")
    return CATALOGUE[slug], model


SCHEMA = "isochrone.probe/1"
# The exit code that shells use for a command ended by Ctrl-C.
_INTERRUPTED = 130
_LIMIT_NOT_KEPT = 5
_GAP_SECONDS = 30.0
_STREAM_SECONDS = 180.0
_LEAST_WIDTH = 60
_EXAMPLES = (
    "isochrone-agent probe groq/llama-3.3-70b-versatile --runs 10",
    "isochrone-agent probe --base-url http://127.0.0.1:8080/v1 --model qwen3-8b",
    "isochrone-agent probe groq/llama-3.3-70b-versatile --runs 9 --max-ttft 500ms --min-tps 30",
    "isochrone-agent probe openai/gpt-5-mini --effort minimal --burst 10",
    "isochrone-agent probe groq/llama-3.3-70b-versatile --record stream.json",
    "isochrone-agent probe openai/gpt-5-mini --effort minimal --sweep 100,1000,4000,16000 --runs 5",
)


def _parse_lengths(_context: click.Context, _parameter: click.Parameter, text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    lengths = [part.strip() for part in text.split(",")]
    if len(lengths) < 2 or not all(length.isdecimal() and int(length) for length in lengths):  # noqa: PLR2004  # a line
        raise click.BadParameter(f"{text!r} is not a list of at least two lengths; for example 100,1000,4000")
    return tuple(int(length) for length in lengths)


def _parse_duration(_context: click.Context, _parameter: click.Parameter, text: str | None) -> int | None:
    try:
        return None if text is None else parse_us(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command("probe", epilog=example(*_EXAMPLES))
@click.argument("what", metavar="[PROVIDER/MODEL]", required=False)
@click.option("--base-url", metavar="URL", help="Base URL of the API; usually ends in /v1.  [default: the provider's]")
@click.option("--model", help="Name of the model in the API; replaces PROVIDER/MODEL.")
@click.option(
    "--dialect",
    type=Choice(list(DIALECTS)),
    help="Format of the API.  [default: the provider's, or openai-chat]",
)
@click.option("--key-env", metavar="VARIABLE", help="Environment variable with the API key.  [default: the provider's]")
@click.option("--runs", default=1, show_default=True, type=click.IntRange(1, 1000), help="Number of runs, in sequence.")
@click.option("--burst", metavar="N", type=click.IntRange(2, 1000), help="Number of concurrent streams per run.")
@click.option(
    "--sweep",
    metavar="WORDS,WORDS,…",
    callback=_parse_lengths,
    help="Prompts of these lengths instead of --prompt, --runs of each; fits TTFT to prompt tokens.",
)
@click.option("--warm", is_flag=True, help="Reuse one connection for all runs instead of opening one per run.")
@click.option("--prompt", default=DEFAULT_PROMPT, show_default=True, help="Prompt to send.")
@click.option("--max-tokens", default=200, show_default=True, type=click.IntRange(1), help="Limit of output tokens.")
@click.option(
    "--temperature",
    type=click.FloatRange(0, 2),
    help="Temperature, such as 0. Not sent by default, as many models accept only their own default.",
)
@click.option("--effort", metavar="WORD", help="Reasoning effort, such as low. Not sent by default.")
@click.option(
    "--omit",
    metavar="FIELD",
    multiple=True,
    help="Do not send this optional field, such as stream_options, which some servers refuse. May be repeated.",
)
@click.option(
    "--timeout",
    default=60.0,
    show_default=True,
    type=Seconds(0.1),
    metavar="SECONDS",
    help="Timeout of the first token.",
)
@click.option(
    "--max-ttft",
    "max_ttft_us",
    metavar="DURATION",
    callback=_parse_duration,
    help="Exit with 5 if the median time to first token of all runs is above this, such as 500ms.",
)
@click.option(
    "--min-tps",
    "min_tokens_per_second",
    metavar="TOKENS/S",
    type=click.FloatRange(min=0, min_open=True),
    help="Exit with 5 if the median speed of all runs is below this, in tokens per second.",
)
@click.option(
    "--summary",
    type=click.File("a", encoding="utf-8", lazy=False),
    metavar="FILE",
    help="Append the runs and limits to this file, as Markdown.",
)
@click.option(
    "--record",
    type=click.File("w", encoding="utf-8", lazy=True),
    metavar="FILE",
    help="Write the stream of a single run to this file for a bug report, without its texts and the key.",
)
@options.connect_to
@options.family
@options.ca_file
@click.option(
    "--client-certificate",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Present this certificate (PEM) to servers that demand one.",
)
@click.option(
    "--client-key",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Its private key (PEM), if it is not in the same file.",
)
@table_or_json
def command(*, summary: TextIO | None, record: TextIO | None, output: str, **values: Any) -> None:  # noqa: ANN401  # options of many kinds
    """Measure one target now: every phase of the connection, time to first token, tokens per second.

    Each run opens its own connection. A provider of the catalogue needs only its key; any other API needs --base-url
    and --model.

    The median of all runs decides --max-ttft and --min-tps. A run that failed counts as beyond both limits, and a limit
    of a value that no run has is not kept.
    """
    limits = {name: values[name] for name in ("max_ttft_us", "min_tokens_per_second")}
    is_single = values["runs"] == 1 and not (values["burst"] or values["sweep"])
    _refuse(record and not is_single, "--record records one stream: omit --runs, --burst and --sweep")
    limited = any(limit is not None for limit in limits.values())
    _refuse(values["sweep"] and limited, "--max-ttft and --min-tps do not go with --sweep: its prompts differ")
    _refuse(values["client_key"] and not values["client_certificate"], "--client-key needs --client-certificate")
    place = {name: values[name] for name in ("base_url", "model", "dialect", "key_env")}
    spec = resolve_target_options(values["what"], **place)
    targets = _targets(spec, values) * values["runs"]
    credential = Credential(name=spec.model, hosts=(), env=spec.key_env)
    key = credential.read(otherwise=", or choose another variable with --key-env") if spec.key_env else None
    recorder = Recorder()
    prober = Prober(
        vantage="here",
        tls=tls_context(values["ca_file"], certificate=values["client_certificate"], key=values["client_key"]),
        dial_options=dial_options(values["connect_to"], values["family"]),
        recorder=recorder if record else None,
    )
    batches, interrupted = _probe_runs(prober, targets, key=key, show_progress=output == "table")
    samples = [sample for batch in batches for sample in batch]
    verdicts = probe_report.judge(samples, **limits)
    bursts = [*map(probe_report.summarise, batches)] if values["burst"] else []
    _print_result(samples, bursts, probe_report.fit(samples) if values["sweep"] else None, verdicts, output)
    if summary is not None:
        summary.write(probe_report.markdown(f"{spec.model} at {spec.base_url}", batches, verdicts))
    if record and samples:
        json.dump(recorder.document(targets[0], samples[0], key=key), record, indent=2, ensure_ascii=False)
    if interrupted:
        click.echo(f"isochrone-agent: interrupted after {len(batches)} of {len(targets)} runs", err=True)
        raise SystemExit(_INTERRUPTED)
    raise SystemExit(_exit_code(samples, verdicts))


def _refuse(is_wrong: object, sentence: str) -> None:
    if is_wrong:
        raise click.UsageError(sentence)


def _exit_code(samples: Sequence[Sample], verdicts: Sequence[Verdict]) -> int:
    if all(sample.outcome is not Outcome.OK for sample in samples):
        return 1
    return 0 if all(verdict.kept for verdict in verdicts) else _LIMIT_NOT_KEPT


def _targets(spec: TargetOptions, values: Mapping[str, Any]) -> list[Target]:
    """Return the target of each prompt. Raises `SettingsError` and `UsageError` for what the API does not support."""
    check_effort(spec, values["effort"])
    _refuse(problem := omit_problem(spec.dialect, values["omit"]), f"--omit: {problem}")
    seconds = values["timeout"]
    workload = Workload(
        max_output_tokens=values["max_tokens"],
        temperature=values["temperature"],
        reasoning_effort=values["effort"],
        timeouts=Timeouts(
            first_token_us=round(seconds * SECOND_US),
            gap_us=round(min(seconds, _GAP_SECONDS) * SECOND_US),
            total_us=round((seconds + _STREAM_SECONDS) * SECOND_US),
        ),
        concurrency=values["burst"] or 1,
        connection=ConnectionUse.WARM if values["warm"] else ConnectionUse.COLD,
    )
    prompts = [*map(probe_report.make_prompt, values["sweep"])] or [values["prompt"]]
    return [spec.target(replace(workload, prompt=text), values["omit"]) for text in prompts]


def _probe_runs(
    prober: Prober, targets: Sequence[Target], *, key: str | None, show_progress: bool
) -> tuple[list[list[Sample]], bool]:
    """Probe the targets in order; return the samples of each run, and whether Ctrl-C interrupted them."""
    batches: list[list[Sample]] = []
    if show_progress:
        one, header = targets[0], probe_report.row(probe_report.HEADINGS, _width())
        click.echo(f"probing {one.model} at {one.base_url} ({one.dialect})\n\n{header}")

    async def run() -> None:
        for target in targets:
            batches.append(await prober.burst(target, round_at=now_at(), key=key))
            for sample in batches[-1] if show_progress else ():
                click.echo(probe_report.sample_row(len(batches), sample, width=_width()))
        await prober.aclose()

    try:
        asyncio.run(run())
    except KeyboardInterrupt:
        return batches, True
    return batches, False


def _width() -> int:
    return max(_LEAST_WIDTH, terminal_width(sys.stdout))


def _print_result(
    samples: Sequence[Sample],
    bursts: Sequence[Burst],
    linear_fit: LinearFit | None,
    verdicts: Sequence[Verdict],
    output: str,
) -> None:
    if output == "table":
        click.echo("\n" + "\n".join(probe_report.footer(samples, bursts, linear_fit, verdicts, width=_width())))
        return
    parts = {
        "percentiles": probe_report.percentiles(samples),
        "bursts": bursts,
        "sweep": linear_fit,
        "limits": verdicts,
    }
    found = {name: to_json_value(part) for name, part in parts.items() if part}
    print_json({"schema": SCHEMA, "samples": to_json_value(samples), **found})
    for verdict in verdicts:
        if not verdict.kept:
            click.echo(f"isochrone-agent: {probe_report.verdict_sentence(verdict)}", err=True)
