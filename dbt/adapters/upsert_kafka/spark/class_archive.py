"""The class archive (CDS): with it Java maps Spark's classes into memory at start instead of loading and verifying each.

Here is where the archive is, and the JVM options that use it. `operations.class_archive` writes it. Java checks that an archive
fits, and starts without it if not.
"""

from __future__ import annotations

import hashlib
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
    identity = [java.build(), pyspark.__version__, str(Path(pyspark.__file__).parent), class_path]
    digest = hashlib.sha256(repr(identity).encode()).hexdigest()[:12]
    return java.cache_dir() / f"spark-classes-{digest}.jsa"


def options(class_path: str) -> str:
    """JVM options that use the archive; empty while there is no archive."""
    archive = archive_path(class_path)
    return f"-XX:SharedArchiveFile='{archive}' {LOG_ERRORS_ONLY}" if archive.is_file() else ""
