"""Tuning of a collector process: memory allocation, garbage collection, and thread switching.

By default glibc returns an array of more than 128 KiB to the kernel when it is freed, and requests new pages for the
next one. Touching those new pages took a third of the time of a push.
"""

import ctypes
import gc
import resource
import sys
from contextlib import suppress

# Parameters of mallopt, from malloc.h of glibc.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 64 << 20
_LARGE_BYTES = 8 << 20
# A push creates thousands of objects without cycles, and frees them all.
_NEW_OBJECTS = 20_000
# While another thread computes, the event loop waits this long for Python's global lock after each of the dozens of
# times that a push does I/O. Python's default is 5 ms; with 1 ms one computing thread kept pushes waiting for 500 ms.
_TURN_S = 0.0001

# File descriptors for the rest of the collector: databases, processes, files.
_OTHER_FILES = 256
_MIN_CONNECTIONS = 64
# Of a connection of HTTP, and of one of gRPC, which has one behind its front with two ends.
_FILES_EACH = 1 + 3


def raise_file_limit() -> None:
    """Raise the limit of open files to the most that this user may have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def max_connections(most: int) -> int:
    """Return how many connections a listener may have: `most`, or its share of the limit of open files."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return most
    return max(_MIN_CONNECTIONS, min(most, (allowed - _OTHER_FILES) // _FILES_EACH))


def tune_process() -> None:
    """Keep freed memory (glibc only), collect garbage less often, and switch threads sooner."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        pass
    else:
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)
    sys.setswitchinterval(_TURN_S)
