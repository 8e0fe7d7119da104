"""Run a program that may not call process_vm_readv: `deny_vm_readv.py PROGRAM ARGUMENT…`

A seccomp filter answers the call with EPERM, as those of container runtimes do.
"""
import ctypes
import os
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
SYS_PROCESS_VM_READV = 310
SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, EPERM = 0x7FFF0000, 0x00050000, 1

program = b"".join(
    struct.pack("HBBI", *step)
    for step in [
        (0x20, 0, 0, 0),  # load the call's number
        (0x15, 0, 1, SYS_PROCESS_VM_READV),  # is it this one?
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
os.execv(sys.argv[1], sys.argv[1:])
