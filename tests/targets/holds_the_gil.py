"""Says its pid on one line, then never lets the GIL go; with an argument it collects garbage
most of the time instead."""
import gc
import os
import sys

heap = [[] for _ in range(300000)] if len(sys.argv) > 1 else []
sys.stdout.write("{\"pid\": %d}\n" % os.getpid())
sys.stdout.flush()
if heap:
    while True:
        gc.collect()
while True:
    pass
