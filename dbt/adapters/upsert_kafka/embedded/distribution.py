"""Java and the jars of Apache Kafka: found, or fetched once into the user's cache.

Promises a folder that holds a complete broker, whatever died half-way before; leaves running it to `node`.
"""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from dbt.adapters.upsert_kafka.errors import EmbeddedBrokerError

KAFKA_VERSION = "4.1.1"
MINIMUM_JAVA = 17
JARS_VARIABLE = "UPSERT_KAFKA_BROKER_JARS"

Say = Callable[[str], None]

# Kafka ships no logging backend; without one, the reason why a broker did not start would be lost.
_IVY_MODULE = """\
<ivy-module version="2.0">
  <info organisation="dbt-upsert-kafka" module="broker"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{version}" conf="default->default"/>
    <dependency org="org.slf4j" name="slf4j-simple" rev="1.7.36" conf="default->default"/>
  </dependencies>
</ivy-module>
"""


def java() -> str:
    """Path of a Java that can run the broker.

    Raises:
        EmbeddedBrokerError: there is none, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home) / "bin" / "java")) if home else shutil.which("java")
    where = f"JAVA_HOME={home}" if home else "PATH"
    remedy = f"Install Java {MINIMUM_JAVA} or newer (OpenJDK will do), or set JAVA_HOME to one."
    if not found:
        raise EmbeddedBrokerError(f"`bootstrap_servers: embedded` and Spark need Java, and none was found in {where}. {remedy}")
    try:
        answer = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise EmbeddedBrokerError(f"{found} (from {where}) could not be run: {e}. {remedy}") from e
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if answer.returncode != 0 or not match:
        raise EmbeddedBrokerError(f"{found} (from {where}) is not a working Java. {remedy}")
    if int(match.group(1)) < MINIMUM_JAVA:
        raise EmbeddedBrokerError(f"{found} (from {where}) is Java {match.group(1)}. {remedy}")
    return found


def cache_folder() -> Path:
    """Where this user's downloads are kept."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base and os.path.isabs(base) else Path.home() / ".cache") / "dbt-upsert-kafka"


def kafka_jars(version: str = KAFKA_VERSION, say: Say = lambda line: None) -> Path:
    """Folder with the broker's jars, fetched if this user has none yet.

    Args:
        version: of Apache Kafka.
        say: takes a line of progress.

    Raises:
        EmbeddedBrokerError: they can't be fetched or stored.
    """
    given = os.environ.get(JARS_VARIABLE)
    if given and version == KAFKA_VERSION:
        if not list(Path(given).glob("kafka_*.jar")):
            raise EmbeddedBrokerError(f"{JARS_VARIABLE}={given} holds no kafka_*.jar; point it at the `libs` folder of a Kafka {version}.")
        return Path(given)
    folder = cache_folder() / f"kafka-{version}"
    if _complete(folder):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(folder.parent / f"kafka-{version}.lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"Another process is fetching Apache Kafka {version}; waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            if not _complete(folder):
                _fetch(version, folder, say)
    except OSError as e:
        reason = "no space left on the device" if e.errno == errno.ENOSPC else e
        raise EmbeddedBrokerError(f"Apache Kafka {version} can't be stored in {folder}: {reason}.") from e
    return folder


def _complete(folder: Path) -> bool:
    """Whether every jar of the folder's own list is there in full size: cleaners of caches remove single files."""
    try:
        sizes: dict[str, int] = json.loads((folder / "jars.json").read_text())
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


def _fetch(version: str, folder: Path, say: Say) -> None:
    command = java()
    # We hold the lock, so whatever is left here belongs to a fetch that died.
    for leftover in folder.parent.glob(f"{folder.name}.part-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    say(f"Fetching Apache Kafka {version} for `bootstrap_servers: embedded` (about 43 MB, once; kept in {folder})")
    part = Path(tempfile.mkdtemp(prefix=f"{folder.name}.part-", dir=folder.parent))
    try:
        (part / "ivy.xml").write_text(_IVY_MODULE.format(version=version))
        log = part / "ivy.log"
        # Relative paths: a home with blanks or commas in its name never becomes part of Ivy's patterns.
        arguments = ["-cache", "ivy", "-ivy", "ivy.xml", "-types", "jar", "bundle", "-retrieve", "jars/[artifact]-[revision].[ext]"]
        with open(log, "wb") as out:
            code = subprocess.run(
                [command, "-jar", str(_ivy()), *arguments], cwd=part, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
            ).returncode
        jars = sorted((part / "jars").glob("*.jar"))
        if code != 0 or not any(jar.name.startswith("kafka_") for jar in jars):
            raise EmbeddedBrokerError(
                f"Apache Kafka {version} could not be fetched: {_reason(log)}. Check the network and proxy "
                f"(JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=…), or set {JARS_VARIABLE} to the `libs` folder of a Kafka that you have."
            )
        (part / "jars" / "jars.json").write_text(json.dumps({jar.name: jar.stat().st_size for jar in jars}))
        shutil.rmtree(folder, ignore_errors=True)
        (part / "jars").rename(folder)
        say(f"Fetched Apache Kafka {version}: {len(jars)} jars")
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _ivy() -> Path:
    spec = importlib.util.find_spec("pyspark")
    for root in (spec.submodule_search_locations or []) if spec else []:
        for jar in sorted(Path(root, "jars").glob("ivy-*.jar")):
            return jar
    raise EmbeddedBrokerError(f"The installed pyspark has no Ivy jar to fetch Apache Kafka with; install `pyspark`, or set {JARS_VARIABLE}.")


def _reason(log: Path) -> str:
    text = log.read_text(errors="replace")
    for pattern in (r"(No space left on device)", r"Server access error[^(]*\(java\.[\w.]+: ([^)]*)", r"java\.net\.(\w+: [^\n)]*)", r":: (\S+: [^\n]*not found)"):
        if match := re.search(pattern, text):
            return match.group(1).strip().rstrip(".")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "Ivy said nothing"
