"""The commands of operators and users, run to completion."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from isochrone_wire.model import Vantage


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """The operator of the collector at `address`. Under TLS, `identity` is the file that the collector wrote."""

    address: str
    identity: Path | None = None

    def apply(self, plan: Path) -> None:
        """Apply a plan."""
        _run("isochrone_collector", "apply", str(plan), "--yes", *self._where())

    def invite(self, vantage: Vantage) -> str:
        """Create a join token."""
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
