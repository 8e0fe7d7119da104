"""A program with shared memory whose pages somebody else is to bring, and never does.

Where such memory may not be made it has none, and says so.
"""
import ctypes
import fcntl
import mmap
import os
import struct

from truth import command, ready, say

BYTES = 16 * os.sysconf("SC_PAGESIZE")


def absent_pages():
    file = ctypes.CDLL(None).syscall(323, os.O_CLOEXEC)  # userfaultfd
    if file < 0:
        return None
    shared = mmap.mmap(-1, BYTES)
    address = ctypes.addressof(ctypes.c_char.from_buffer(shared))
    fcntl.ioctl(file, 0xC018AA3F, struct.pack("QQQ", 0xAA, 0, 0))  # UFFDIO_API
    fcntl.ioctl(file, 0xC020AA00, struct.pack("QQQQ", address, BYTES, 1, 0))  # UFFDIO_REGISTER
    return shared, file


if __name__ == "__main__":
    kept = absent_pages()
    ready(absent=kept is not None)
    command()
    say("done", threads=[])
    command()
