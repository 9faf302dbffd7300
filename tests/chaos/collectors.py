"""The collectors under test: two on one database, with one certificate and with adjustable wall clocks."""

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from chaos.process import Program
from isochrone_wire.model import Vantage


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """The operator of the collector at `address`. Under TLS, `identity` is the file that the collector wrote."""

    address: str
    identity: Path | None = None

    def apply(self, plan: Path) -> None:
        _run("isochrone_collector", "apply", str(plan), "--yes", *self._where())

    def invite(self, vantage: Vantage) -> str:
        arguments = ("vantage", "add", vantage.name, "--region", vantage.region, "--output", "json")
        return str(json.loads(_run("isochrone_collector", *arguments, *self._where()))["token"])

    def _where(self) -> Sequence[str]:
        return ["--collector", self.address, *(("--identity", str(self.identity)) if self.identity else ())]


def join(address: str, token: str, data_dir: Path) -> None:
    """Exchange a token for the identity of an agent, stored in its data folder."""
    _run("isochrone_agent", "join", address, "--token", token, "--data-dir", str(data_dir))


def _run(module: str, *words: str) -> str:
    command = [sys.executable, "-m", module, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(f"{module} {words[0]} failed: {done.stderr}")
    return done.stdout


@dataclass(eq=False, slots=True)
class Collector:
    program: Program
    clock: Path
    port: int = 0
    socket: str = ""
    ahead_s: float = 0.0

    @property
    def leads(self) -> bool:
        """True if it led when it wrote its log."""
        log = self.program.log()
        return self.program.runs and log.rfind('"leadership.taken"') > log.rfind('"leadership.lost"')

    def set_clock(self, ahead_s: float) -> None:
        self.ahead_s = ahead_s
        self.clock.parent.mkdir(exist_ok=True)
        scratch = self.clock.with_suffix(".new")
        scratch.write_text(str(ahead_s))
        scratch.replace(self.clock)


async def start_collectors(
    stack: AsyncExitStack, folder: Path, url: str, collectors: int, *, tls: bool
) -> tuple[list[Collector], Operator]:
    """Start collectors on a database; return them and the operator of the first, whose certificate all use."""
    first, operator = await _start(stack, folder / "collector-1", url, ("--tls",) if tls else ())
    files = folder / "collector-1" / "tls"
    shared = ("--certificate", str(files / "certificate.pem"), "--key", str(files / "key.pem")) if tls else ()
    rest = [await _start(stack, folder / f"collector-{number}", url, shared) for number in range(2, collectors + 1)]
    return [first, *(collector for collector, _ in rest)], operator


async def _start(stack: AsyncExitStack, home: Path, url: str, tls: tuple[str, ...]) -> tuple[Collector, Operator]:
    clock = home / "clock"
    variables = {"TEST_CLOCK_FILE": str(clock)}
    program = Program(name="collector", module="chaos.collector_with_clock", folder=home, environment=variables)
    collector = Collector(program, clock)
    collector.set_clock(0.0)
    program.arguments = _arguments(home, url, 0, tls)
    program.start()
    stack.callback(program.kill)
    ready = await program.ready_line()
    collector.port = int(str(ready["listen"]).rpartition(":")[2])
    collector.socket = str(ready["socket"])
    # The next start uses the same port.
    program.arguments = _arguments(home, url, collector.port, tls)
    identity = Path(str(ready["operator"])) if tls else None
    return collector, Operator(address=str(ready["listen"]), identity=identity)


def _arguments(home: Path, url: str, port: int, tls: tuple[str, ...]) -> tuple[str, ...]:
    where = ("--listen", f"127.0.0.1:{port}", "--data-dir", str(home), "--database-url", url)
    trust = () if tls else ("--trust-loopback",)
    return ("serve", *where, *tls, *trust, "--http-listen", "off", "--log-format", "json")
