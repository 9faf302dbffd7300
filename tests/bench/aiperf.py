"""NVIDIA's `aiperf` at the same loads against the same simulator, if the command is installed.

It is found on the PATH or by the variable ISOCHRONE_AIPERF. It runs offline: prompts come from a file, the server
counts the tokens, and the tokenizer that it requires is a byte tokenizer in its download cache. Its export contains the
headers of each response, and with them the request id of the ground truth.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.references import Measurement
from bench.simulator import MODEL, TOKENS

VARIABLE = "ISOCHRONE_AIPERF"
RUN_SECONDS = 300
_TOKENIZER = "bench/bytes"
_SNAPSHOT = "local"


class AiperfUnavailable(Exception):  # noqa: N818  # named after the condition
    """aiperf cannot be measured here; the message is the reason."""


def find() -> Path:
    """Return the path of the command. Raises `AiperfUnavailable`."""
    name = os.environ.get(VARIABLE, "aiperf")
    found = shutil.which(name)
    if found is None:
        raise AiperfUnavailable(f"the command {name} is not installed (set {VARIABLE}=/path/to/aiperf)")
    return Path(found)


def measure(command: Path, base_url: str, folder: Path, *, streams: int, requests: int) -> list[Measurement]:
    """Return the results of some requests, `streams` in flight. Raises `AiperfUnavailable` if it fails."""
    write_tokenizer(folder / "home")
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(f'{{"text": "[{n:06}] Explain recursion in 200 words"}}\n' for n in range(requests)))
    exported = folder / f"{streams}-in-flight"
    shutil.rmtree(exported, ignore_errors=True)
    arguments = (
        *("profile", "--model", MODEL, "--url", base_url.removesuffix("/v1")),
        *("--endpoint-type", "chat", "--streaming", "--use-server-token-count", "--tokenizer", _TOKENIZER),
        *("--input-file", str(prompts), "--custom-dataset-type", "single_turn", "--osl", str(TOKENS)),
        *("--concurrency", str(streams), "--request-count", str(requests)),
        *("--artifact-dir", str(exported), "--export-http-trace", "--ui", "none"),
        *("--no-gpu-telemetry", "--no-server-metrics"),
    )
    records = exported / "profile_export.jsonl"
    output = _run(command, arguments, home=folder / "home")
    if not records.exists():
        errors = (line.partition(" ERROR ")[2].strip() for line in output.splitlines())
        raise AiperfUnavailable(next(filter(None, errors), "it exited without an export"))
    measurements = read_export(records.read_text().splitlines())
    if len(measurements) < requests:
        raise AiperfUnavailable(f"it reports {len(measurements)} of {requests} requests")
    return measurements


def read_export(lines: Iterable[str]) -> list[Measurement]:
    """Return the measurements in an export, without failures and warm-up. Raises `AiperfUnavailable`."""
    try:
        return [
            _measurement(record)
            for record in map(json.loads, lines)
            if not record.get("error") and record["metadata"]["benchmark_phase"] == "profiling"
        ]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise AiperfUnavailable(f"its export has an unknown format: {error!r}") from error


def write_tokenizer(home: Path) -> None:
    """Write a byte tokenizer into the download cache of Hugging Face's libraries."""
    cached = home / "hub" / f"models--{_TOKENIZER.replace('/', '--')}"
    snapshot = cached / "snapshots" / _SNAPSHOT
    snapshot.mkdir(parents=True, exist_ok=True)
    (cached / "refs").mkdir(exist_ok=True)
    (cached / "refs" / "main").write_text(_SNAPSHOT)
    bytewise = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "vocab": _byte_letters(), "merges": []}
    tokenizer = {"version": "1.0", "added_tokens": [], "pre_tokenizer": bytewise, "decoder": bytewise, "model": model}
    (snapshot / "tokenizer.json").write_text(json.dumps(tokenizer))
    (snapshot / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')


def _run(command: Path, arguments: Sequence[str], *, home: Path) -> str:
    try:
        done = subprocess.run(
            [command, *arguments],
            env={**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=RUN_SECONDS,
            text=True,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AiperfUnavailable(str(error)) from error
    return done.stdout


def _byte_letters() -> dict[str, int]:
    """Return GPT-2's character for every byte: itself if printable, otherwise one from U+0100 on."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(0x100) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(0x100 + n): byte for n, byte in enumerate(hidden)}


def _measurement(record: Mapping[str, Any]) -> Measurement:
    metrics = record["metrics"]
    headers = {name.lower(): value for name, value in record["trace_data"]["response_headers"].items()}
    return Measurement(
        request_id=headers["x-request-id"],
        ttft_us=metrics["time_to_first_token"]["value"] * 1000,
        tokens_per_second=metrics["output_token_throughput_per_user"]["value"],
    )
