"""Tuning of a collector process: memory allocation, garbage collection, and thread switching.

By default glibc returns an array of more than 128 KiB to the kernel when it is freed, and requests new pages for the
next one. Touching those new pages took a third of the time of a push.
"""

import ctypes
import gc
import sys

# Parameters of mallopt, from malloc.h of glibc.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 64 << 20
_LARGE_BYTES = 8 << 20
# A push creates thousands of objects without cycles, and frees them all.
_NEW_OBJECTS = 20_000
# With Python's default of 5 ms the thread that packs would delay every answer of the event loop.
_TURN_S = 0.001


def tune_process() -> None:
    """Keep up to 64 MiB of freed memory (glibc only), collect garbage less often and never among the objects of the
    start, and switch threads every millisecond.
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
