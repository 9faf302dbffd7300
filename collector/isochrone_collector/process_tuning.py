"""How the collector's process keeps house: memory, garbage, and turns between its two threads.

By default glibc gives an array of more than 128 KiB back to the kernel when it is dropped and asks for fresh pages for
the next one. Touching those pages again took a third of the time of a push.
"""

import ctypes
import gc
import sys

# Parameters of mallopt, from malloc.h of glibc.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 64 << 20
_LARGE_BYTES = 8 << 20
# A push makes thousands of objects and no cycles, and drops them all.
_NEW_OBJECTS = 20_000
# Python's own 5 ms, after which the thread that packs lets the event loop in, would be felt in every answer.
_TURN_S = 0.001


def tune_process() -> None:
    """Keep up to 64 MiB of what is dropped where the C library is glibc, look for garbage less often and never again
    among what is there now, and let threads take turns every millisecond.
    """
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
