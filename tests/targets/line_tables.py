"""Prints, as one line of JSON, the line tables of some modules of the standard library beside
the interpreter's own reading of them."""
import argparse
import asyncio.base_events
import dis
import json
import sys
import tarfile
import types
import typing
import _pydecimal


def codes_of(code, seen):
    if code not in seen:
        seen[code] = None
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                codes_of(constant, seen)


def starts(code):
    if not hasattr(code, "co_lines"):
        return list(dis.findlinestarts(code)) + [(len(code.co_code), None)]
    found, end = [], 0
    for start, end, line in code.co_lines():
        if start < end:
            found.append((start, line))
    return found + [(end, None)]


modules = [argparse, asyncio.base_events, dis, tarfile, types, typing, _pydecimal]
codes = {}
for module in modules:
    with open(module.__file__, encoding="utf-8") as file:
        codes_of(compile(file.read(), module.__file__, "exec"), codes)
answer = []
for code in codes:
    table = code.co_linetable if hasattr(code, "co_linetable") else code.co_lnotab
    answer.append({
        "name": code.co_name, "first_line": code.co_firstlineno,
        "table": list(table), "starts": starts(code),
    })
print(json.dumps({"hexversion": sys.hexversion, "codes": answer}), flush=True)
