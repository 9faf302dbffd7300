"""The identity file of the collector's own operator, which commands on the same host use without configuration."""

from dataclasses import replace
from pathlib import Path
from socket import gethostname

import structlog

from isochrone_collector.auth.enrolment import Enrolment
from isochrone_collector.server.certificates import Certificates
from isochrone_common import identity_file
from isochrone_common.address import Address
from isochrone_common.credentials import parse_credential
from isochrone_common.identity_file import Identity
from isochrone_common.trust import Trust
from isochrone_wire.operations import Role

FILE_NAME = "operator.json"
_EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # the address to reach it from this host

_log = structlog.get_logger()


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
        """Write the file unless it is up to date.

        Raises `DatabaseUnavailable`. A folder that cannot be written is logged: operators can join instead.
        """
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
