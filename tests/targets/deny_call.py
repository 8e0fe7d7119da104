"""Run a program that may not call one of the kernel's functions: `deny_call.py CALL PROGRAM ARGUMENT…`

A seccomp filter answers the call with EPERM, as those of container runtimes do.
"""
import ctypes
import os
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
CALLS = {"process_vm_readv": 310, "bpf": 321}
SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, EPERM = 0x7FFF0000, 0x00050000, 1

program = b"".join(
    struct.pack("HBBI", *step)
    for step in [
        (0x20, 0, 0, 0),  # load the call's number
        (0x15, 0, 1, CALLS[sys.argv[1]]),  # is it this one?
        (0x06, 0, 0, SECCOMP_RET_ERRNO | EPERM),
        (0x06, 0, 0, SECCOMP_RET_ALLOW),
    ]
)
held = ctypes.create_string_buffer(program, len(program))


class Filter(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


libc = ctypes.CDLL(None, use_errno=True)
wanted = Filter(len(program) // 8, ctypes.addressof(held))
if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
    sys.exit(os.strerror(ctypes.get_errno()))
if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(wanted), 0, 0):
    sys.exit(os.strerror(ctypes.get_errno()))
os.execv(sys.argv[2], sys.argv[2:])
