"""What the kernel knows of its wall clock: whether somebody keeps it, and how far off it may be. Linux only.

Source: adjtimex(2). With `modes` 0 it changes nothing and anybody may call it.
"""

import ctypes
import sys
from dataclasses import dataclass

_TIME_ERROR = 5
_STA_UNSYNC = 0x40
# The C structure is 208 bytes on 64-bit Linux; what follows the status is not looked at.
_REST_BYTES = 208


class _Timex(ctypes.Structure):
    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * _REST_BYTES),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelClock:
    """`max_error_us` bounds how far off the wall clock is, as long as it is `synchronised`."""

    synchronised: bool
    max_error_us: int


def kernel_clock() -> KernelClock | None:
    """What the kernel says now; `None` where it cannot be asked."""
    if sys.platform != "linux":
        return None
    told = _Timex()
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(told))
    except (OSError, AttributeError):
        return None
    if state < 0:
        return None
    kept = state != _TIME_ERROR and not told.status & _STA_UNSYNC
    return KernelClock(synchronised=kept, max_error_us=told.maxerror)
