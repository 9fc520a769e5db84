"""What both programs of the benchmark on the official Python SDK share."""

import asyncio
import sys
import time

FILE_BYTES = 4096


def usage():
    """What this process has used so far."""
    with open("/proc/self/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    kib = {name: int(fields[name].split()[0]) for name in ("VmRSS", "VmHWM")}
    cpu_us = time.process_time_ns() // 1000
    return {"cpu_us": cpu_us, "rss_kib": kib["VmRSS"], "peak_kib": kib["VmHWM"], "allocations": None}


class Watch:
    """Times things that are done one after the other, in nanoseconds."""

    def __init__(self):
        self.begun = self.last = time.perf_counter_ns()
        self.took = []

    def lap(self):
        now = time.perf_counter_ns()
        self.took.append(now - self.last)
        self.last = now

    def again(self):
        self.last = time.perf_counter_ns()

    def wall(self):
        return time.perf_counter_ns() - self.begun

    def latency(self):
        took, last = sorted(self.took), len(self.took) - 1
        return {"mean": sum(took) / len(took), "p50": took[last // 2], "p99": took[last * 99 // 100]}


def run(main):
    """Runs a program; `uvloop` as its first argument has it run on that loop."""
    if sys.argv[1:2] == ["uvloop"]:
        del sys.argv[1]
        import uvloop

        uvloop.run(main)
    else:
        asyncio.run(main)
