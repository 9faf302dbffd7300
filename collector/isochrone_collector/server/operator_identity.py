"""The collector's own operator: a file in the data folder with which its host's commands need no configuration."""

from dataclasses import replace
from pathlib import Path
from socket import gethostname

import structlog

from isochrone_collector.auth.certificates import Certificates
from isochrone_collector.auth.enrolment import Enrolment
from isochrone_wire import identity_file
from isochrone_wire.address import Address
from isochrone_wire.channel import Trust
from isochrone_wire.credentials import parse_credential
from isochrone_wire.identity_file import Identity
from isochrone_wire.operations import Role

FILE_NAME = "operator.json"
_EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # what such an address is reached at from here

_log = structlog.get_logger()


class OperatorFile:
    """Keeps `operator.json` true: this collector's address, its certificate of now, and a credential that is good."""

    def __init__(self, *, data_dir: Path, listen: Address, identities: Enrolment) -> None:
        self.path = data_dir / FILE_NAME
        self._address = Address(_EVERY_ADDRESS.get(listen.host, listen.host), listen.port)
        self._identities = identities
        self._fingerprint = b""

    async def follow(self, certificates: Certificates) -> None:
        """As `keep`, when the certificate is another than the last time."""
        if certificates.current.fingerprint != self._fingerprint:
            await self.keep(certificates)

    async def keep(self, certificates: Certificates) -> None:
        """Write the file, or write it again when something in it is not true any more.

        Raises `DatabaseUnavailable`. A folder that cannot be written is told in the log: operators may join instead.
        """
        kept, pair = self._read(), certificates.current
        self._fingerprint = pair.fingerprint
        name = kept.name if kept else f"operator@{gethostname()}"
        credential = await self._identities.operator(name, parse_credential(kept.credential) if kept else None)
        trust = Trust(roots=pair.certificate, server_name=pair.name, client=kept.trust.client if kept else None)
        wanted = Identity(address=self._address, name=name, role=Role.OPERATOR, trust=trust, credential=str(credential))
        if wanted == kept:
            return
        try:
            identity_file.write(self.path, wanted)
        except OSError as error:
            _log.warning("operator.unwritten", file=str(self.path), reason=error.strerror)
        else:
            _log.info("operator.written", file=str(self.path))

    async def drop(self) -> None:
        """Plain text is spoken now: nobody needs the file, and its credential ends. Raises `DatabaseUnavailable`."""
        kept = self._read()
        if kept is not None and kept.address == self._address:
            await self._identities.forget(parse_credential(kept.credential))
            self.path.unlink(missing_ok=True)

    def _read(self) -> Identity | None:
        try:
            found = identity_file.read(self.path)
        except (OSError, ValueError):
            return None
        return replace(found, region=None)
