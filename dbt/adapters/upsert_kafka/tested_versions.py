"""The versions that `make matrix` has tested, and the warning about others. docs/compatibility.md has the rows.

A unit test compares the versions with the results of the matrix.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import version

DBT_CORE = ("1.10", "1.11", "1.12")
PYSPARK = ("4.0.0", "4.1.1", "4.2.0", "4.2.1")
PYTHON = ("3.11", "3.12", "3.13")
JAVA = ("17", "21")


def warning(java: str | None, pyspark: str) -> str | None:
    """One line about the versions that were not tested; None if all were.

    Args:
        java: its major version; None if Spark runs in the Java of a server.
        pyspark: the version of the Spark that runs, which may be a server's.
    """
    found = {
        "dbt-core": (version("dbt-core"), DBT_CORE),
        "pyspark": (pyspark, PYSPARK),
        "Python": (platform.python_version(), PYTHON),
        **({"Java": (java, JAVA)} if java is not None else {}),
    }
    untested = untested_versions(found)
    return f"{' and '.join(untested)}. Everything may work; docs/compatibility.md lists what was tested." if untested else None


def untested_versions(found: Mapping[str, tuple[str, tuple[str, ...]]]) -> list[str]:
    """Phrases for the versions whose minor version (of Java: the major version) is not among the tested ones.

    >>> untested_versions({"pyspark": ("4.3.0", ("4.0.0", "4.1.1")), "Java": ("17.0.2", ("17",))})
    ['pyspark 4.3.0 was not tested (4.0, 4.1 were)']
    """
    phrases = []
    for name, (installed, tested) in found.items():
        length = len(tested[0].split(".")[:2])
        series = list(dict.fromkeys(".".join(text.split(".")[:length]) for text in tested))
        if ".".join(installed.split(".")[:length]) not in series:
            phrases.append(f"{name} {installed} was not tested ({', '.join(series)} were)")
    return phrases
