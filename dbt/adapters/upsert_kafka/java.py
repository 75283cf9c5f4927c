"""Java, and jars by their Maven coordinates: found, checked and fetched once into the user's cache.

The resolver is the Ivy that comes inside pyspark, so nothing else must be installed. Leaves to `session` and `embedded`
which jars they need.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from xml.sax.saxutils import quoteattr

from dbt.adapters.upsert_kafka.errors import UpsertKafkaError

OLDEST_JAVA = 17


def cache_dir() -> Path:
    """The per-user folder for what is fetched."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "dbt-upsert-kafka"


@cache
def find_java() -> Path:
    """The java to run: JAVA_HOME's, else the PATH's; missing or too old is one line."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not java or not os.access(java, os.X_OK):
        where = f"JAVA_HOME is '{home}'" if home else "there is no java on the PATH"
        raise UpsertKafkaError(
            f"Java {OLDEST_JAVA} or newer is needed and {where}: install it (for example openjdk-17-jre-headless)"
        )
    match = re.search(r'version "(\d+)', _version(java))
    if match is None or int(match[1]) < OLDEST_JAVA:
        found = f"version {match[1]}" if match else "an unknown version"
        raise UpsertKafkaError(
            f"Java {OLDEST_JAVA} or newer is needed and '{java}' is {found}: install a newer one or set JAVA_HOME"
        )
    return Path(java)


def java_version() -> str:
    """What the java to run says of itself."""
    return _version(str(find_java()))


@cache
def _version(java: str) -> str:
    return subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr


def fetch_jars(name: str, coordinates: Iterable[str], exclude: Iterable[str] = ()) -> list[Path]:
    """The jars of `group:artifact:version` coordinates with all they need, from the cache or fetched into it.

    A coordinate with `:type:classifier` at its end is that one file.

    Args:
        name: what the jars are, for the progress line and the cache's folder.
        coordinates: what is needed; its dependencies follow.
        exclude: groups that are already there.

    Returns:
        The jars' paths, sorted.
    """
    wanted, excluded = sorted(coordinates), sorted(exclude)
    digest = hashlib.sha256(repr((wanted, excluded)).encode()).hexdigest()[:12]
    folder = cache_dir() / "jars" / f"{name}-{digest}"
    if not folder.is_dir():
        # What lies here is run: nobody else may put anything there.
        cache_dir().mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.parent.mkdir(exist_ok=True)
        with open(folder.parent / f"{name}-{digest}.lock", "w") as lock:
            # Two processes at once: the second waits, then finds the folder.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                _resolve(name, wanted, excluded, folder)
    return sorted(folder.iterdir())


def _resolve(name: str, coordinates: list[str], exclude: list[str], folder: Path) -> None:
    import pyspark

    java = find_java()
    [ivy, *_] = sorted((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    print(f"Fetching {name} ({', '.join(coordinates)}), once …", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, ignore_cleanup_errors=True) as scratch:
        (Path(scratch) / "ivy.xml").write_text(_module_descriptor(coordinates, exclude))
        # Relative, because Ivy reads paths as patterns; a cache of its own, because Ivy's does not bear two processes at once.
        arguments = ["-ivy", "ivy.xml", "-cache", "cache", "-confs", "default", "-warn"]
        arguments += ["-retrieve", "jars/[artifact]-[revision](-[classifier]).[ext]"]
        if all(coordinate.count(":") > _JAR_COLONS for coordinate in coordinates):
            (Path(scratch) / "settings.xml").write_text(_FILES_ONLY)
            arguments += ["-settings", "settings.xml"]
        command = [str(java), "-jar", str(ivy), *arguments]
        done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
        jars = Path(scratch) / "jars"
        if done.returncode != 0 or not jars.is_dir():
            lines = [
                line.strip()
                for line in (done.stdout + done.stderr).splitlines()
                if "not found" in line or "exception" in line.lower()
            ]
            reason = lines[0] if lines else "the registry did not answer"
            raise UpsertKafkaError(
                f"The jars of {name} ({', '.join(coordinates)}) could not be fetched: {reason}. "
                "Check the network; without one set `jars:` in the profile"
            )
        check_sums(name, coordinates, sorted(jars.glob("*.jar")))
        jars.rename(folder)
    print(f"Fetched {name}: {len(list(folder.iterdir()))} files", file=sys.stderr, flush=True)


_JAR_COLONS = 2
# A single file needs no description of what it depends on, and not every registry has that of its parent.
_FILES_ONLY = (
    '<ivysettings><settings defaultResolver="files"/><resolvers>'
    '<ibiblio name="files" m2compatible="true" usepoms="false"/></resolvers></ivysettings>'
)


def check_sums(name: str, coordinates: list[str], jars: list[Path]) -> None:
    """Refuse jars other than those that this version of the package was tested with, whatever the registry says of them.

    For versions that are not listed the registry's own checksums count, which Ivy has compared already.
    """
    lines = (Path(__file__).with_name("checksums.txt")).read_text().splitlines()
    known = {file: digest for digest, file in (line.split() for line in lines)}
    named = {f"{artifact}-{version}.jar" for _, artifact, version, *_ in (c.split(":") for c in coordinates)}
    if not named <= known.keys():
        return
    for jar in jars:
        if known.get(jar.name) != hashlib.sha256(jar.read_bytes()).hexdigest():
            raise UpsertKafkaError(
                f"The jars of {name} were fetched and not kept: {jar.name} is not the file that this version was tested with "
                f"(SHA-256). Ask who runs your package registry; files that you trust can be named by `jars:` in the profile"
            )


def _module_descriptor(coordinates: list[str], exclude: list[str]) -> str:
    dependencies = []
    for coordinate in coordinates:
        group, artifact, version, *file = coordinate.split(":")
        names = f"org={quoteattr(group)} name={quoteattr(artifact)} rev={quoteattr(version)}"
        if file:
            kind, classifier = map(quoteattr, file)
            one = f"<artifact name={quoteattr(artifact)} type={kind} ext={kind} e:classifier={classifier}/>"
            dependencies.append(f'<dependency {names} transitive="false" conf="default->default">{one}</dependency>')
        else:
            dependencies.append(f'<dependency {names} conf="default->runtime(default),master(default)"/>')
    excluded = [f"<exclude org={quoteattr(group)}/>" for group in exclude]
    return (
        '<ivy-module version="2.0" xmlns:e="http://ant.apache.org/ivy/extra">'
        '<info organisation="dbt-upsert-kafka" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(dependencies + excluded)}</dependencies></ivy-module>"
    )
