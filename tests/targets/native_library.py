"""A thread that waits below a library's functions, which Python called and which called Python."""
import ctypes
import json
import os
import sys
import threading

reader, writer = os.pipe()
library = ctypes.CDLL(sys.argv[1])
calls = ctypes.CFUNCTYPE(ctypes.c_int)


def wait():
    os.read(reader, 1)
    return 0


def enters():
    library.enter(calls(wait))


if __name__ == "__main__":
    started = threading.Event()
    threads = {}

    def begin():
        threads[threading.get_native_id()] = ["wait", "enters"]
        started.set()
        enters()

    threading.Thread(target=begin, daemon=True).start()
    started.wait()
    if "gone" in sys.argv:
        os.unlink(sys.argv[1])
    sys.stdout.write(json.dumps({"reader": reader, "threads": threads}) + "\n")
    sys.stdout.flush()
    sys.stdin.readline()
    os._exit(0)
