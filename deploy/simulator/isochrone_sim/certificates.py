"""TLS certificates: the user's own, or self-signed ones that `openssl` creates for loopback."""

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
    """Paths of a certificate (with its chain) and its key, in PEM."""

    chain: Path
    key: Path


def server_context(certificate: Certificate) -> ssl.SSLContext:
    """Return the TLS context of a server. Raises `SettingsError` if the files are not a certificate and its key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate.chain, certificate.key)
    except OSError as error:
        # ssl.SSLError is a subclass of OSError.
        reason = error.strerror or str(error)
        raise SettingsError(
            f"cannot use {certificate.chain} and {certificate.key}: {reason}",
            hint="--tls-cert and --tls-key must be PEM files of one certificate, without a passphrase",
        ) from error
    return context


def self_signed(folder: Path) -> Certificate:
    """Create a self-signed certificate for 127.0.0.1, ::1 and localhost in `folder`, valid for a week.

    Raises `SettingsError` if `openssl` is missing or fails.
    """
    made = Certificate(chain=folder / "certificate.pem", key=folder / "key.pem")
    program = shutil.which("openssl")
    if program is None:
        raise SettingsError("openssl is not installed", hint="install it, or use --tls-cert and --tls-key")
    command = [program, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "7", "-subj", "/CN=localhost", "-addext", _NAMES]
    command += ["-keyout", str(made.key), "-out", str(made.chain)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)  # noqa: S603  # fixed arguments
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise SettingsError(f"openssl failed to create a certificate: {lines[-1]}", hint="use --tls-cert and --tls-key")
    return made
