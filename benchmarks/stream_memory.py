"""The memory of a contender while its stream runs: resident memory of its processes, and the used heap of its largest JVM."""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

EVERY_SECONDS = 5.0
WINDOWS = 4


@dataclass(frozen=True)
class Sample:
    """Memory at one time, in MB."""

    resident: float
    heap: float | None
    """None without a JDK."""


class Memory(threading.Thread):
    """Takes samples of a process group until the block ends.

    Args:
        group: the id of the group.
    """

    def __init__(self, group: int) -> None:
        super().__init__(daemon=True)
        self.samples: list[Sample] = []
        self._group = group
        self._over = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(EVERY_SECONDS):
            resident = {process: _resident(process) for process in _processes(self._group)}
            self.samples.append(Sample(sum(resident.values()), _heap(resident)))

    def note(self) -> str:
        """The lowest used heap of each quarter of the time, and how many samples there are."""
        heaps = [sample.heap for sample in self.samples if sample.heap is not None]
        heap = f"lowest used heap {_change([min(part) for part in _windows(heaps)])}, " if len(heaps) >= WINDOWS else ""
        return f"{heap}{len(self.samples)} samples, every {EVERY_SECONDS:.0f} s"

    def resident(self) -> list[float]:
        """The median resident memory of each quarter of the time."""
        return [statistics.median(part) for part in _windows([sample.resident for sample in self.samples])]


def _windows(values: Sequence[float]) -> list[Sequence[float]]:
    """
    >>> _windows([1, 2, 3, 4, 5, 6, 7, 8, 9])
    [[1, 2], [3, 4], [5, 6], [7, 8]]
    """
    size = max(1, len(values) // WINDOWS)
    return [values[n * size : (n + 1) * size] for n in range(min(WINDOWS, len(values)))]


def _change(windows: Sequence[float]) -> str:
    """
    >>> _change([100.0, 130.0, 120.0])
    '100, 130, 120 MB'
    """
    return ", ".join(f"{value:.0f}" for value in windows) + " MB"


def _processes(group: int) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdecimal() and os.getpgid(int(folder.name)) == group:
                found.append(int(folder.name))
        except ProcessLookupError:
            continue
    return found


def _resident(process: int) -> float:
    try:
        return int(re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())[0]) / 1024
    except (OSError, IndexError):  # it has ended
        return 0.0


def _heap(resident: dict[int, float]) -> float | None:
    """The used heap of the largest process, which is the JVM that computes."""
    if not resident or shutil.which("jcmd") is None:
        return None
    command = ["jcmd", str(max(resident, key=lambda process: resident[process])), "GC.heap_info"]
    found = re.search(r"used (\d+)K", subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    return int(found[1]) / 1024 if found else None
