"""Health checks of `doctor`: from a measured fact to a verdict, a sentence and a hint. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from isochrone_common.cli.health_check import CheckResult, fail, ok, warn
from isochrone_common.credentials import format_fingerprint
from isochrone_wire.model import DAY_US
from isochrone_wire.operations import is_expiring

_MIB = 1 << 20
_LITTLE_BYTES = 512 * _MIB
_NOTHING_BYTES = 64 * _MIB
_NAMED = 3
_MAX_ERROR_US = 100_000


def judge_disk(free_bytes: int, *, where: str) -> CheckResult:
    """Check that a spool at `where` has room to grow while the collector is unreachable."""
    sentence = f"{free_bytes / (1 << 30):.1f} GiB free at {where}"
    if free_bytes < _NOTHING_BYTES:
        return fail("disk", sentence, "free disk space: samples that cannot be written are lost")
    if free_bytes < _LITTLE_BYTES:
        return warn("disk", sentence, "free disk space, so that the spool can hold an outage of days")
    return ok("disk", sentence)


def judge_spool(problems: Sequence[str], *, waiting: int) -> CheckResult:
    """Check that the whole spool is readable. `problems` are sentences."""
    if problems:
        hint = "`isochrone-agent spool verify` lists all problems; the agent recovers what it can when it starts"
        return fail("samples", "; ".join(problems[:_NAMED]), hint)
    return ok("samples", f"{waiting} waiting, and everything in the spool is readable")


def judge_identity_file(mode: int, *, where: str) -> CheckResult:
    """Check that only its owner can read an identity file with these permission bits."""
    if mode & 0o077:
        return fail("identity", f"{where} is readable by other users (mode {mode:04o})", f"chmod 600 {where}")
    return ok("identity", f"{where} is readable by its owner only")


def judge_lifetime(sentence: str, renew_at: int | None, expires_at: int | None, *, now_at: int) -> CheckResult:
    """Check that the agent renews its credential in time; `sentence` describes the identity otherwise."""
    if expires_at is None:
        return ok("identity", sentence)
    if now_at >= expires_at:
        hint = "join again with a token of `isochrone-collector vantage rotate` or `vantage add`"
        return fail("identity", f"{sentence}; its credential has expired", hint)
    sentence += f"; its credential is valid for {(expires_at - now_at) // DAY_US} more days"
    if is_expiring(renew_at, expires_at, now_at):
        return warn("identity", sentence, "it should have been renewed: is the agent running? see identity.not_renewed")
    return ok("identity", sentence)


def judge_certificate(presented: bytes, pinned: Sequence[bytes]) -> CheckResult:
    """Check that the collector presents a pinned certificate, if any is pinned; all are SHA-256 of the DER form."""
    shown = format_fingerprint(presented)
    if not pinned:
        return ok("certificate", f"{shown}, verified by certificate authorities")
    if presented not in pinned:
        hint = "if it was replaced on purpose, join again; if not, the connection may be intercepted"
        return fail("certificate", f"the collector presents {shown}, not {format_fingerprint(pinned[0])}", hint)
    coming = f"; next {format_fingerprint(pinned[-1])}" if presented != pinned[-1] else ""
    return ok("certificate", f"{shown}, as pinned by this agent{coming}")


def judge_clock(synchronised: bool | None, *, max_error_us: int) -> CheckResult:
    """Check that the kernel reports a synchronised wall clock; `None` where it does not report it."""
    if synchronised is None:
        return warn("clock", "this system does not report whether NTP synchronises it", "make sure that NTP is running")
    if not synchronised:
        hint = "start chrony or systemd-timesyncd; rounds of two vantages are paired by the clock"
        return warn("clock", "the kernel reports that it is not synchronised", hint)
    sentence = f"synchronised, at most {max_error_us / 1000:.0f} ms off"
    return ok("clock", sentence) if max_error_us <= _MAX_ERROR_US else warn("clock", sentence, "check the NTP source")


def judge_keys(missing: str, hint: str, present: Iterable[str]) -> CheckResult:
    """Check that the plan's targets have their keys. `missing` describes those without; no key is passed in."""
    if missing:
        return fail("keys", missing, f"{hint}; until then these targets are skipped_not_ready")
    names = ", ".join(sorted(set(present)))
    return ok("keys", names or "no target needs a key")


def judge_policy(name: str, refused: str, *, is_limited: bool, is_shared: bool) -> CheckResult:
    """Check the agent's policy. `refused` describes the plan's targets that it refuses, `is_limited` is true if the
    collector alone cannot decide how much is sent, and `is_shared` if other users can change its file.
    """
    if is_shared:
        return fail("policy", f"{name} can be changed by other users", f"chmod go-w {name}")
    if refused:
        hint = "correct the plan, or allow them in the agent's policy; until then these targets are skipped_not_ready"
        return fail("policy", f"{name} refuses {refused}", hint)
    if not is_limited:
        hint = "limit the requests per day in policy.toml: see docs/agent.md, section Policy"
        return warn("policy", f"{name}, without a limit per day: the collector decides how much is sent", hint)
    return ok("policy", f"{name}, refuses no target of the plan")


def judge_names(unresolved: Mapping[str, str], resolved: Sequence[str]) -> CheckResult:
    """Check that the hosts of the plan's targets resolve. `unresolved` maps a host to the reason."""
    if unresolved:
        said = "; ".join(f"{host}: {why}" for host, why in sorted(unresolved.items()))
        return fail("names", said, "check the resolver, /etc/resolv.conf and the base_url in the plan")
    return ok("names", f"{', '.join(sorted(resolved)) or 'none'}")
