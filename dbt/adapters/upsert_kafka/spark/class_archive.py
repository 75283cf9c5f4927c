"""The class archive (CDS): with it Java maps Spark's classes into memory at start instead of loading and verifying each.

Here is where the archive is, and the JVM options that use it. `operations.class_archive` writes it. Java checks that an archive
fits, and starts without it if not.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pyspark

from dbt.adapters.upsert_kafka import java

# Without these Java warns on stdout about an archive that does not fit.
LOG_ERRORS_ONLY = "-Xlog:disable -Xlog:all=error:stderr"


def archive_path(class_path: str) -> Path:
    """The path of the archive for this Java and this Spark, whether it exists or not.

    Args:
        class_path: of the driver, in front of Spark's own jars. An archive fits only the class path that it was written with.
    """
    jars = [(jar, *_stamp(Path(jar))) for jar in class_path.split(os.pathsep) if jar]
    identity = [java.build(), pyspark.__version__, jars]
    return java.cache_dir() / f"{_prefix()}-{_digest(identity)}.jsa"


def former_archives(archive: Path) -> list[Path]:
    """The archives of earlier versions of Java, Spark or the jars, for the same installation of Spark."""
    return [path for path in archive.parent.glob(f"{_prefix()}-*.jsa") if path != archive]


def _prefix() -> str:
    return f"spark-classes-{_digest(str(Path(pyspark.__file__).parent))}"


def _digest(identity: object) -> str:
    return hashlib.sha256(repr(identity).encode()).hexdigest()[:12]


def _stamp(jar: Path) -> tuple[int, int]:
    """What Java compares before it uses an archive."""
    found = jar.stat() if jar.exists() else None
    return (found.st_mtime_ns, found.st_size) if found else (0, 0)


def options(class_path: str) -> str:
    """JVM options that use the archive; empty while there is no archive."""
    archive = archive_path(class_path)
    return f"-XX:SharedArchiveFile='{archive}' {LOG_ERRORS_ONLY}" if archive.is_file() else ""
