"""Runs a command and measures it with all processes that it leaves: `process.py FILE COMMAND…` writes JSON to the file.

The JVMs of a command end after it. They become children of this process, so that their CPU time is known.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import time

PR_SET_CHILD_SUBREAPER = 36


def main(file: str, *command: str) -> int:
    """Write `seconds`, by the clock until the command ended, and `processor`, CPU seconds of all processes."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    started = time.monotonic()
    exit_code = subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode
    seconds = time.monotonic() - started
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(file, "w") as results:
        json.dump({"seconds": seconds, "processor": used.ru_utime + used.ru_stime}, results)
    return exit_code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
