"""Writes the seeds of the fuzz targets that are made by hand: `python3 tests/fuzz/seeds.py`.

A seed whose name begins with `found-` is none of these: it is an input that broke something once,
or one that the fuzzer kept because it goes where no other goes.
"""
import json
import os
import struct
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))


def seed(target, name, content):
    folder = os.path.join(HERE, "seeds", target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(content)


def lie(word, how, other=0, raw=b""):
    return struct.pack("<IB", word, how) + struct.pack("<I", other)[:3] + raw


def walks():
    for image in range(10):
        seed("walk", "image-%d" % image, bytes([image, 7]) + lie(3 + image, 4, 2))
    many = b"".join(lie(n * 7, n, n * 3) for n in range(8))
    seed("walk", "many", bytes([5, 0]) + many)
    seed("walk", "raw", bytes([3, 2]) + lie(1, 255, 0, struct.pack("<Q", 1 << 16)))


def record(kind, body, time=10**9):
    return struct.pack("<IIQII", kind, 24 + len(body), time, 42, 43) + body


def wires():
    for name, kind in [("fork", 2), ("exec", 3), ("exit", 4), ("gone", 5)]:
        seed("wire", name, record(kind, struct.pack("<IIQ", 42, 0, 12345)))
    seed("wire", "end-of-time", record(2, struct.pack("<IIQ", 42, 0, 0), 2**64 - 1))
    for frames, generators in ((0, 0), (3, 0), (3, 2)):
        fixed = struct.pack(
            "<IIQQQQQQIiIIIIQQQII",
            1, 1, 0x401000, 0x7FFD0000, 0x7F0000000740, 0x7F0000001000, 5, 99999,
            0x7F, 202, 0, frames, frames + 5, 1, 7, 8,
            0x7F0000002000 if generators else 0, generators, generators,
        )
        body = fixed + b"".join(struct.pack("<QQ", 0x1000 + n, n) for n in range(frames))
        body += b"".join(struct.pack("<QQ", 0x2000 + 8 * n, 2 * n) for n in range(generators))
        name = "sample-%d" % frames + ("-of-%d" % generators if generators else "")
        seed("wire", name, record(1, body))


def line_tables():
    tables = [
        (8, 10, 4, bytes([0, 1, 8, 1, 4, 2, 255, 0, 45, 0x80])),
        (10, 10, 12, bytes([4, 0, 6, 1, 2, 0x80, 8, 0xFE, 0, 5, 2, 1])),
        (11, 10, 24, bytes([0xC9, 0x23, 0xD0, 1, 2, 0xE7, 1, 2, 0xE8, 7, 0xF0, 0x48, 2, 0x41, 1, 5, 0])),
        (15, 0xFFFFFFFF, 0, bytes([0xF8 | 2, 0xD8, 1, 2])),
    ]
    for minor, first_line, offset, table in tables:
        head = struct.pack("<BII", minor - 8, first_line, offset)
        seed("line_tables", "python-3.%d" % minor, head + table)


def image_files():
    meta = {
        "pid": 7,
        "recipe": "made by hand",
        "maps": [{"start": 4096, "end": 8192, "perms": "rw-p", "path": "/x"}],
        "tasks": [{"tid": 7, "started": 1, "inner": 7, "name": "a", "state": "S", "cpu_ns": 0, "start_stack": None}],
        "facts": {"python": "3.12.1"},
    }
    text = json.dumps(meta).encode()
    plain = struct.pack("<I", len(text)) + text
    plain += struct.pack("<IQI", 1, 0x1000, 8) + b"12345678"
    plain += struct.pack("<IQIIi", 1, 0x9000, 4, 4, 14)
    seed("image_file", "whole", b"PROFIMG\x01" + zlib.compress(plain))
    seed("image_file", "unpacked", plain)


def elf(kind, parts):
    """An ELF file of one segment and these sections: name, type, address, content, link."""
    names, contents, headers = b"\0", b"", [bytes(64)]
    for name, type_, addr, content, link in parts + [(".shstrtab", 3, 0, None, 0)]:
        at = len(names)
        names += name.encode() + b"\0"
        content = names if content is None else content
        headers.append(struct.pack("<IIQQQQIIQQ", at, type_, 0, addr, 120 + len(contents), len(content), link, 0, 0, 0))
        contents += content
    file = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack("<HHI", kind, 62, 1)
    file += struct.pack("<QQQI", 0, 64, 120 + len(contents), 0)
    file += struct.pack("<6H", 64, 56, 1, 64, len(headers), len(headers) - 1)
    file += struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 4096, 4096, 4096)
    return file + contents + b"".join(headers)


def elves():
    names = b"\0_PyRuntime\0Py_Version\0PyGILState_GetThisThreadState\0"
    symbols = b"".join(
        struct.pack("<IBBHQQ", name, 0x11, 0, 5, value, 8)
        for name, value in [(1, 0x100), (12, 0x140), (23, 0x150)]
    )
    rodata = b"\0cpython-38\x003.8.18\0"
    table = [(".dynsym", 11, 0, symbols, 2), (".dynstr", 3, 0, names, 0), (".rodata", 1, 0, rodata, 0)]
    seed("elf", "symbols", b"\0" + elf(3, table))
    seed("elf", "symbols-musl", b"\2" + elf(2, table))
    for minor in (13, 14, 15):
        offsets = struct.pack("<QQ", 0x030000F0 | minor << 16, 0) + bytes(8 * 180)
        runtime = [(".PyRuntime", 1, 120, b"xdebugpy" + offsets, 0)]
        seed("elf", "section-3.%d" % minor, b"\1" + elf(3, runtime))
    cookie = b"xdebugpy" + struct.pack("<QQ", 0x030D00F0, 0)
    seed("elf", "cookie", b"\1" + cookie.ljust(2048, b"\x08"))


def btfs():
    strings = b"\0task_struct\0thread\0fsbase\0a\0btf_trace_sched_switch\0"
    at = {name: strings.index(b"\0" + name.encode() + b"\0") + 1 for name in ("task_struct", "thread", "fsbase", "a")}
    trace = strings.index(b"btf_trace")
    integer = struct.pack("<IIII", 0, 1 << 24, 8, 64)
    inner = struct.pack("<III", at["thread"], 4 << 24 | 1, 8) + struct.pack("<III", at["fsbase"], 1, 0)
    outer = struct.pack("<III", at["task_struct"], 4 << 24 | 2, 16)
    outer += struct.pack("<III", at["a"], 1, 0) + struct.pack("<III", at["thread"], 2, 64)
    proto = struct.pack("<III", 0, 13 << 24 | 2, 0) + struct.pack("<IIII", 0, 1, 0, 3)
    pointer = struct.pack("<III", 0, 2 << 24, 4)
    typedef = struct.pack("<III", trace, 8 << 24, 5)
    types = integer + inner + outer + proto + pointer + typedef
    head = struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(types), len(types), len(strings))
    seed("btf", "small", head + types + strings)
    # A structure that is its own nameless member.
    loop = struct.pack("<III", at["a"], 4 << 24 | 2, 16) + struct.pack("<III", 0, 1, 1 << 31) * 2
    head = struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(loop), len(loop), len(strings))
    seed("btf", "loop", head + loop + strings)


walks()
wires()
line_tables()
image_files()
elves()
btfs()
