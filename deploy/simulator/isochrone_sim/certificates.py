"""Certificates: those of a person, and those that `openssl` makes on the spot for this machine's loopback."""

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

from isochrone_sim.errors import SettingsError

_NAMES = "subjectAltName=IP:127.0.0.1,IP:0:0:0:0:0:0:0:1,DNS:localhost"
_SECONDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Where a certificate (with its chain) and its key are, in PEM."""

    chain: Path
    key: Path


def server_context(certificate: Certificate) -> ssl.SSLContext:
    """What a TLS server needs. Raises `SettingsError` when the files do not hold a certificate and its key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate.chain, certificate.key)
    except OSError as error:
        # ssl.SSLError is one too.
        reason = error.strerror or str(error)
        raise SettingsError(
            f"{certificate.chain} and {certificate.key} cannot be used: {reason}",
            hint="--tls-cert and --tls-key name PEM files of one certificate without a passphrase; or --self-signed",
        ) from error
    return context


def self_signed(folder: Path) -> Certificate:
    """A certificate for 127.0.0.1, ::1 and localhost, signed by itself and good for a week, made in `folder`.

    Raises `SettingsError` when there is no `openssl` to make it.
    """
    made = Certificate(chain=folder / "certificate.pem", key=folder / "key.pem")
    program = shutil.which("openssl")
    if program is None:
        raise SettingsError("no openssl here to make a certificate", hint="install it, or use --tls-cert and --tls-key")
    command = [program, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "7", "-subj", "/CN=localhost", "-addext", _NAMES]
    command += ["-keyout", str(made.key), "-out", str(made.chain)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)  # noqa: S603  # our own arguments
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise SettingsError(f"openssl made no certificate: {lines[-1]}", hint="use --tls-cert and --tls-key")
    return made
