"""The collector's certificate: files of the operator, or a self-signed pair; both are reloaded when the files change.

New connections get a new certificate once `refresh` has loaded it. Existing ones keep the old one until they end, and
`isochrone_common.channel` limits their age.

A self-signed pair is replaced in two steps, because agents and readers have pinned it: `rotate` makes the next pair,
which the collector announces to every authenticated client, and the collector switches to it at a later instant. Other
collectors that serve the same files announce the next pair, too, and leave the switch to the one that made them.

The identity file of the collector's own operator, which commands on the same host use without configuration, has the
certificate, too.
"""

import fcntl
import ipaddress
import os
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socket import gethostname

import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from isochrone_collector.alerts.message import AlertMessage, of_certificate
from isochrone_collector.auth.enrolment import Enrolment
from isochrone_collector.clock import now_at
from isochrone_collector.errors import SettingsError, StartError
from isochrone_collector.settings import Tls
from isochrone_common import identity_file
from isochrone_common.address import Address
from isochrone_common.credentials import fingerprint_of, format_fingerprint, parse_credential
from isochrone_common.files import replace_file
from isochrone_common.identity_file import Identity
from isochrone_common.trust import Trust
from isochrone_wire.model import SECOND_US
from isochrone_wire.operations import Role

SERVER_NAME = "isochrone-collector"
_MAX_COMMON_NAME = 64

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A certificate with its chain and its key, in PEM, and the SHA-256 of the certificate (DER)."""

    chain: bytes
    key: bytes = field(repr=False)
    fingerprint: bytes
    client_ca: bytes | None = None

    @property
    def certificate(self) -> str:
        """The certificate alone, in PEM."""
        return self._first.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def name(self) -> str | None:
        """The first name of the certificate, if it has one."""
        held = x509.SubjectAlternativeName(self.alternative_names)
        names = [*held.get_values_for_type(x509.DNSName), *map(str, held.get_values_for_type(x509.IPAddress))]
        return names[0].replace("*", "collector") if names else None

    @property
    def expires_at(self) -> int:
        """The end of its validity, in microseconds since the Unix epoch."""
        return round(self._first.not_valid_after_utc.timestamp()) * SECOND_US

    @property
    def alternative_names(self) -> list[x509.GeneralName]:
        """The names and addresses of the certificate."""
        try:
            return list(self._first.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
        except x509.ExtensionNotFound:
            return []

    def expiry_alert(self, at: int) -> AlertMessage | None:
        """Return the alert on the end of its validity, if that is near at an instant."""
        name, fingerprint = self.name or "the collector", format_fingerprint(self.fingerprint)
        return of_certificate(name, fingerprint, expires_at=self.expires_at, raised_at=at)

    @property
    def _first(self) -> x509.Certificate:
        return x509.load_pem_x509_certificates(self.chain)[0]


@dataclass(frozen=True, slots=True)
class PairFiles:
    """The files of a pair, and of the authorities (PEM) that sign the certificates of clients."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


class NextFiles:
    """The files of the next pair beside `own`. The key moves first: without it, a switch was interrupted."""

    def __init__(self, own: PairFiles) -> None:
        self.own = own
        folder = own.certificate.parent
        self.certificate, self.key = folder / "next-certificate.pem", folder / "next-key.pem"
        self.switch_at_file = folder / "switch-at"
        """The file with the instant of the switch, in microseconds since the Unix epoch."""

    def switch_at(self) -> int | None:
        """Return the instant of the switch, `None` without a next pair. Raises `OSError` and `ValueError`."""
        return int(self.switch_at_file.read_text()) if self.certificate.exists() and self.key.exists() else None

    def switch_if_due(self, now_at: int) -> None:
        """Move the next pair into place at its instant, or complete that. Raises `OSError` and `ValueError`."""
        switch_at = self.switch_at()
        if switch_at is not None and switch_at <= now_at:
            self.key.replace(self.own.key)
        if self.certificate.exists() and not self.key.exists():
            self.certificate.replace(self.own.certificate)

    def load(self) -> KeyPair | None:
        """Return the next pair, if there is one. Raises `StartError`."""
        if not (self.certificate.exists() and self.key.exists()):
            return None
        return _load(PairFiles(self.certificate, self.key))


class Certificates:
    """The certificate in use, and the `coming` one. Raises `StartError` at the start; later that is logged."""

    def __init__(self, files: Tls, *, data_dir: Path, host: str) -> None:
        self._is_owner = files.certificate is None or files.key is None
        if files.certificate is None or files.key is None:
            self._files = _own_files(files, data_dir / "tls", host)
        else:
            self._files = PairFiles(files.certificate, files.key, files.client_ca)
        self._next = NextFiles(self._files)
        self._lock = threading.Lock()
        self._switch_if_due()
        self._stamps_seen = self._file_stamps()
        self.current = _load(self._files)
        self.coming = self._load_next()
        self._contexts: dict[str, ssl.SSLContext] = {}

    def announced(self) -> Sequence[KeyPair]:
        """Return the pair that is presented now, and the coming one."""
        return [self.current, self.coming] if self.coming else [self.current]

    def context(self, protocol: str = "http/1.1") -> ssl.SSLContext:
        """Return the context for a new connection of this protocol, with the certificate in use."""
        if protocol not in self._contexts:
            self._contexts[protocol] = self._new_context(protocol)
        return self._contexts[protocol]

    def _new_context(self, protocol: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols([protocol])
        if protocol == "h2":
            # gRPC's clients resume no session, and a fifth of a handshake is for the tickets.
            context.num_tickets = 0
        if self.current.client_ca is not None:
            context.load_verify_locations(cadata=self.current.client_ca.decode())
            context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(self._files.certificate, self._files.key)
        return context

    def refresh(self) -> None:
        """Reload the files if they have changed."""
        with self._lock:
            self._switch_if_due()
            changed = self._file_stamps()
            if changed == self._stamps_seen:
                return
            self._stamps_seen = changed
            try:
                self.current = _load(self._files)
                self.coming = self._load_next()
                self._contexts = {protocol: self._new_context(protocol) for protocol in self._contexts}
            except (StartError, ssl.SSLError) as error:
                # Perhaps only half of a new pair is written; the other half changes the files again.
                _log.warning("certificate.unusable", reason=str(error))
            else:
                _log.info("certificate.replaced", fingerprint=format_fingerprint(self.current.fingerprint))

    def _switch_if_due(self) -> None:
        if not self._is_owner:
            return
        try:
            self._next.switch_if_due(now_at())
        except (OSError, ValueError) as error:
            _log.error("certificate.not_switched", reason=str(error))  # no traceback

    def _load_next(self) -> KeyPair | None:
        coming = self._next.load()
        if coming is not None:
            _log.info("certificate.announced", fingerprint=format_fingerprint(coming.fingerprint))
        return coming

    def _file_stamps(self) -> list[tuple[int, int] | None]:
        coming = self._next.certificate, self._next.key
        files = self._files.certificate, self._files.key, self._files.client_ca, *coming
        return [_stamp(path) for path in files if path]


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


def _load(files: PairFiles) -> KeyPair:
    chain, key = _bytes(files.certificate), _bytes(files.key)
    try:
        [first, *_] = x509.load_pem_x509_certificates(chain)
        private = serialization.load_pem_private_key(key, password=None)
        fits = private.public_key() == first.public_key()
    except (ValueError, TypeError) as error:
        raise StartError(
            f"{files.certificate} and {files.key} cannot be used: {error}",
            hint="--certificate and --key take PEM files, the key without a passphrase",
        ) from error
    if not fits:
        raise StartError(
            f"{files.key} is not the key of {files.certificate}", hint="--certificate and --key must match"
        )
    client_ca = _authorities(files.client_ca) if files.client_ca else None
    return KeyPair(chain=chain, key=key, fingerprint=first.fingerprint(hashes.SHA256()), client_ca=client_ca)


def _authorities(path: Path) -> bytes:
    content = _bytes(path)
    try:
        x509.load_pem_x509_certificates(content)
    except ValueError as error:
        raise StartError(f"{path} contains no certificate: {error}", hint="--client-ca takes a PEM file") from error
    return content


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StartError(
            f"{path} cannot be read: {error.strerror}", hint="make it readable for the collector's user"
        ) from error


def rotate(data_dir: Path, *, switch_at: int) -> tuple[bytes, bool]:
    """Make the next pair unless there is one, and set its switch; return its fingerprint, and whether it is new."""
    folder = data_dir / "tls"
    own = _pair_in(folder)
    files = NextFiles(own)
    try:
        if folder.stat().st_uid != os.geteuid():
            raise SettingsError(f"{folder} belongs to another user", hint="run this command as the collector's user")
        current = _load(own)
        with _exclusive(folder / "lock"):
            is_new = not (files.certificate.exists() and files.key.exists())
            replace_file(files.switch_at_file, str(switch_at).encode())
            if is_new:
                chain, key = _pair_with(current.alternative_names)
                replace_file(files.key, key)
                replace_file(files.certificate, chain, mode=0o644)
    except OSError as error:
        hint = "only a certificate that `serve` made is rotated; name its --data-dir"
        raise SettingsError(f"cannot rotate the certificate in {folder}: {error.strerror}", hint=hint) from error
    except StartError as error:
        raise SettingsError(str(error), hint=error.hint) from error
    coming = _load(PairFiles(files.certificate, files.key))
    return coming.fingerprint, is_new


def switch_at(data_dir: Path, fingerprint: bytes) -> int | None:
    """Return the instant, in microseconds, at which a collector switches to the certificate of this fingerprint."""
    files = NextFiles(_pair_in(data_dir / "tls"))
    try:
        return files.switch_at() if fingerprint_of(files.certificate.read_text()) == fingerprint else None
    except (OSError, ValueError):
        return None


def _pair_in(folder: Path, *, client_ca: Path | None = None) -> PairFiles:
    return PairFiles(folder / "certificate.pem", folder / "key.pem", client_ca)


def _own_files(files: Tls, folder: Path, host: str) -> PairFiles:
    own = _pair_in(folder, client_ca=files.client_ca)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _exclusive(folder / "lock"):
            if not own.certificate.exists():
                chain, key = _self_signed(host)
                replace_file(own.key, key)
                replace_file(own.certificate, chain, mode=0o644)
                _log.info("certificate.created", file=str(own.certificate))
    except OSError as error:
        hint = (
            "choose another --data-dir; or pass --certificate, --key and --unix-socket; or, if every process of this "
            "machine may be an operator, --trust-loopback"
        )
        raise StartError(f"cannot write a certificate to {folder}: {error.strerror}", hint=hint) from error
    return own


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _self_signed(host: str) -> tuple[bytes, bytes]:
    return _pair_with(list(_names(host)))


def _pair_with(names: Sequence[x509.GeneralName]) -> tuple[bytes, bytes]:
    """Return a self-signed certificate with these names, and its key, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    # Clients that have pinned two certificates find the right one by its subject.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{SERVER_NAME} {serial:x}"[:_MAX_COMMON_NAME])])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        # The clocks of agents may be behind.
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=365 * 10))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM), secret


def _names(host: str) -> Iterator[x509.GeneralName]:
    yield x509.DNSName(SERVER_NAME)
    for name in dict.fromkeys((socket.gethostname(), "localhost", "127.0.0.1", "::1", host)):
        try:
            yield x509.IPAddress(ipaddress.ip_address(name))
        except ValueError:
            # A certificate cannot hold a name that is not ASCII.
            if name.isascii():
                yield x509.DNSName(name)


FILE_NAME = "operator.json"
_EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # the address to reach it from this host


class OperatorFile:
    """The file `operator.json`, with this collector's address, its current certificate and a valid credential."""

    def __init__(self, *, data_dir: Path, listen: Address, http_port: int, enrolment: Enrolment) -> None:
        self.path = data_dir / FILE_NAME
        self._address = Address(_EVERY_ADDRESS.get(listen.host, listen.host), listen.port)
        self._http_port = http_port
        self._enrolment = enrolment
        self._announced: list[bytes] = []

    async def write_if_changed(self, certificates: Certificates) -> None:
        """Call `write` if the certificate or the coming one has changed since the last call."""
        if [pair.fingerprint for pair in certificates.announced()] != self._announced:
            await self.write(certificates)

    async def write(self, certificates: Certificates) -> None:
        """Write the file unless it is up to date; a failure is logged. Raises `DatabaseUnavailable`."""
        current, pair, coming = self._read_current(), certificates.current, certificates.coming
        self._announced = [pair.fingerprint for pair in certificates.announced()]
        name = current.name if current else f"operator@{gethostname()}"
        credential = await self._enrolment.operator_credential(
            name, parse_credential(current.credential) if current else None
        )
        trust = Trust(
            roots=pair.certificate,
            server_name=pair.name,
            next_certificate=coming.certificate if coming else None,
            client=current.trust.client if current else None,
        )
        wanted = Identity(
            address=self._address,
            name=name,
            role=Role.OPERATOR,
            trust=trust,
            credential=str(credential),
            http_port=self._http_port,
        )
        if wanted == current:
            return
        try:
            identity_file.write(self.path, wanted)
        except OSError as error:
            _log.warning("operator_identity.write_failed", file=str(self.path), reason=error.strerror)
        else:
            _log.info("operator.written", file=str(self.path))

    async def remove(self) -> None:
        """Delete the file and revoke its credential, for a collector without TLS. Raises `DatabaseUnavailable`."""
        current = self._read_current()
        if current is not None and current.address == self._address:
            await self._enrolment.end_credential(parse_credential(current.credential))
            self.path.unlink(missing_ok=True)

    def _read_current(self) -> Identity | None:
        try:
            found = identity_file.read(self.path)
        except (OSError, ValueError):
            return None
        return replace(found, region=None)
