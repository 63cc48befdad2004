# SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note
"""A thread's hint to scx_gpuaware: what it does for a GPU. Python 3.8 or newer, no dependency.

    import gpuaware
    gpuaware.hint("launch")     # this thread launches GPU work
    gpuaware.hint("handoff")    # this thread hands work to one that does
    gpuaware.hint(None)         # not any more

hint() returns True if the hint was left for the scheduler, False if it has not run since boot or ended
cleanly, this container does not see its BPF file system (/sys/fs/bpf), its policy does not let this
user hint (guard.hint_gid) or the kernel is too old (6.9, for threads other than the main one). True
does not say that the hint counts: a user who is not in guard.trust_uids is refused later, and after a
kill -9 nobody takes it. `scx_gpuaware marks` says. The hint counts within 250 ms, until the thread
ends, its process starts another program or the scheduler ends.
"""

import ctypes
import os
import platform
import struct
import threading
import time

PINS = "/sys/fs/bpf/scx_gpuaware"

_CLASSES = {None: 0, "launch": 1, "handoff": 2}
_BPF_MAP_UPDATE_ELEM, _BPF_OBJ_GET = 2, 7
_PIDFD_OPEN = 434
_PIDFD_THREAD = 0o200
_BPF = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}

_libc = ctypes.CDLL(None, use_errno=True)


def hint(what):
    """Says what the calling thread does: "launch", "handoff" or None. See the module.

    Raises ValueError for anything else.
    """
    if what not in _CLASSES:
        raise ValueError(f'{what!r}: expected "launch", "handoff" or None')
    try:
        tid = threading.get_native_id()
        flags = 0 if tid == os.getpid() else _PIDFD_THREAD
        pidfd = _checked(_libc.syscall(_PIDFD_OPEN, tid, flags))
        try:
            _update("hints", struct.pack("=I", pidfd), struct.pack("=I", _CLASSES[what]))
        finally:
            os.close(pidfd)
        # Any value that was not there before has the scheduler look.
        _update("hint_calls", struct.pack("=I", 0), struct.pack("=Q", time.monotonic_ns()))
    except OSError:
        return False
    return True


def _checked(result):
    if result < 0:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno))
    return result


def _bpf(command, attr):
    number = _BPF.get(platform.machine())
    if number is None:
        raise OSError("no number of the bpf system call is known for this machine")
    buffer = ctypes.create_string_buffer(attr.ljust(64, b"\0"), 64)
    return _checked(_libc.syscall(number, command, buffer, 64))


def _update(pin, key, value):
    path = ctypes.create_string_buffer(os.path.join(PINS, pin).encode())
    pinned = _bpf(_BPF_OBJ_GET, struct.pack("=Q", ctypes.addressof(path)))
    try:
        key, value = ctypes.create_string_buffer(key), ctypes.create_string_buffer(value)
        addresses = ctypes.addressof(key), ctypes.addressof(value)
        _bpf(_BPF_MAP_UPDATE_ELEM, struct.pack("=IIQQQ", pinned, 0, *addresses, 0))
    finally:
        os.close(pinned)
