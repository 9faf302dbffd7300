"""Value classes of the collector's answers to operators and to pushes. Units as in `isochrone_wire.model`."""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import ClassVar

from isochrone_wire.model import BatchRange, Rejection
from isochrone_wire.stable_ids import public_id

ALERT_PREFIX, INCIDENT_PREFIX, SILENCE_PREFIX = "alert_", "incident_", "silence_"
"""The prefixes of the public forms of ids."""

alert_name = partial(public_id, ALERT_PREFIX)
"""Return the public form of the id of an alert."""
incident_name = partial(public_id, INCIDENT_PREFIX)
"""Return the public form of the id of an incident."""
silence_name = partial(public_id, SILENCE_PREFIX)
"""Return the public form of the id of a silence."""

_INCIDENT = re.compile(rf"(?:{INCIDENT_PREFIX})?([0-7][0-9a-f]{{15}})")


class Role(StrEnum):
    """The permissions of a credential: push as one vantage, query, or query and operate."""

    VANTAGE = "vantage"
    READER = "reader"
    OPERATOR = "operator"


def is_expiring(renew_at: int | None, expires_at: int | None, at: int) -> bool:
    """Return whether half of the time between the instant for the renewal of a credential and its end has passed."""
    return renew_at is not None and expires_at is not None and at >= (renew_at + expires_at) // 2


class AccessState(StrEnum):
    """The state of a credential; `INVITED` is an invitation that has not been used yet."""

    INVITED = "invited"
    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChange:
    """The changes by a plan; `problems` if it was refused, `warnings` on what no vantage can measure of what it adds.
    Daily figures are of one vantage and known prices.
    """

    version: int = 0
    changed: bool = False
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    altered: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    usd_per_day: float | None = None
    requests_per_day: int = 0
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanVersion:
    """A plan of the history. A rollback `restores` a version; `signed_by` is the public key of the signature."""

    version: int
    applied_at: int
    applied_by: str
    targets: int
    restores: int | None = None
    signed_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHistory:
    """Plans, newest first."""

    plans: tuple[PlanVersion, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDocument:
    """The document of one plan and its origin; `restores` as in `PlanVersion`, `signature` as in `Plan`."""

    version: int
    document: str
    applied_at: int
    applied_by: str
    restores: int | None = None
    signature: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """A one-time join token and its expiry."""

    token: str
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The result of enrolment, whose credential is never shown again. A vantage has a region, a credential with a
    lifetime has instants; `http_port` is that of the collector, 0 if it has none.
    """

    credential: str
    role: Role
    name: str
    region: str | None = None
    expires_at: int | None = None
    renew_at: int | None = None
    http_port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewed:
    """The successor of a credential, if requested, and the present and next certificates (PEM) of the collector."""

    credential: str | None = None
    expires_at: int | None = None
    renew_at: int | None = None
    certificates: tuple[str, ...] = ()
    http_port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One credential or open invitation, without its secret. `renew_at` is set for a credential with a lifetime."""

    id: int
    name: str
    role: Role
    state: AccessState
    created_at: int
    region: str | None = None
    expires_at: int | None = None
    revoked_at: int | None = None
    last_used_at: int | None = None
    renew_at: int | None = None

    def is_expiring(self, at: int) -> bool:
        """Return whether its holder should have renewed it, and half of the time for that has passed."""
        return self.state is AccessState.ACTIVE and is_expiring(self.renew_at, self.expires_at, at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoked:
    """The numbers of join tokens and credentials that were revoked."""

    invitations: int
    credentials: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One change: the name of the credential that made it, the address that it came from, and what was changed."""

    at: int
    principal: str
    address: str
    action: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditTrail:
    """Changes, newest first."""

    entries: tuple[AuditEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessList:
    """All credentials and open invitations."""

    access: tuple[Access, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The reply to a push. The counts add up to the number of samples pushed; `delay_us` is the requested wait
    before the next push. `received_at` and `server_at` are the collector's clock when it received the push and
    created the reply. `plan_hash` is the content hash of the plan in force. `missing` are those of the
    `kept` batches that the database does not have.
    """

    stored: int = 0
    duplicate: int = 0
    rejected: int = 0
    rejections: tuple[Rejection, ...] = ()
    plan_version: int = 0
    server_at: int = 0
    delay_us: int | None = None
    received_at: int = 0
    plan_hash: bytes = b""
    missing: tuple[BatchRange, ...] = ()


class DeliveryState(StrEnum):
    """The state of the delivery of an alert to a receiver. `GIVEN_UP`: the receiver did not accept it in time."""

    DELIVERED = "delivered"
    PENDING = "pending"
    SILENCED = "silenced"
    GIVEN_UP = "given_up"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertDelivery:
    """The delivery of an alert to one receiver; `attempts` are those of the last time it was sent."""

    receiver: str
    state: DeliveryState
    delivered_at: int | None = None
    attempts: int = 0
    last_error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """A silence of alerts, by patterns; empty patterns match everything. With a `thread` it is the acknowledgement of
    one problem, about `subject`: an incident, or the alert that began it.
    """

    ID_PREFIX: ClassVar[str] = SILENCE_PREFIX

    id: int
    targets: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    thread: str = ""
    subject: str = ""
    reason: str
    created_by: str
    created_at: int
    until_at: int
    ended_at: int | None = None
    ended_by: str = ""

    @property
    def name(self) -> str:
        """The public form of its id."""
        return silence_name(self.id)

    @property
    def patterns(self) -> str:
        """Its patterns in a line, such as `target=openai/* kind=drift`."""
        parts = {"target": self.targets, "provider": self.providers, "region": self.regions, "kind": self.kinds}
        return " ".join(f"{name}={','.join(patterns)}" for name, patterns in parts.items() if patterns)

    def is_in_force(self, at: int) -> bool:
        """Return whether it has neither expired nor been ended at an instant."""
        return at < self.until_at and self.ended_at is None


def parse_incident_name(text: str) -> int | None:
    """Return the id of an incident from its public form, or from its digits alone; `None` if it is not one."""
    found = _INCIDENT.fullmatch(text)
    return int(found[1], 16) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SilenceList:
    """Silences and acknowledgements, newest first."""

    silences: tuple[Silence, ...] = ()
