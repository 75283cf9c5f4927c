"""Finds Java, and downloads jars by their Maven coordinates into the user's cache.

The resolver is the Ivy that pyspark contains, so nothing else has to be installed. Leaves to `spark.session` and `embedded` which
jars they need.
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

from dbt.adapters.upsert_kafka.errors import JarsNotFoundError, UpsertKafkaError

OLDEST_JAVA = 17


def cache_dir() -> Path:
    """The user's cache folder of this package."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "dbt-upsert-kafka"


@cache
def find_java() -> Path:
    """The java executable: from JAVA_HOME, otherwise from the PATH.

    Raises:
        UpsertKafkaError: Java is missing or too old.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not java or not os.access(java, os.X_OK):
        where = f"JAVA_HOME is '{home}'" if home else "there is no java on the PATH"
        raise UpsertKafkaError(
            f"Java {OLDEST_JAVA} or newer is needed and {where}. Install it, for example openjdk-17-jre-headless."
        )
    major = _major(java)
    if major is None or major < OLDEST_JAVA:
        found = f"version {major}" if major else "an unknown version"
        raise UpsertKafkaError(
            f"Java {OLDEST_JAVA} or newer is needed and '{java}' is {found}. Install a newer one or set JAVA_HOME."
        )
    return Path(java)


def java_version() -> str:
    """The output of `java -version`."""
    return _version(str(find_java()))


def major_version() -> str:
    """The major version of the Java that is used."""
    return str(_major(str(find_java())))


def build() -> str:
    """Identifies the Java that is used: what its file `release` says, or the output of `java -version`."""
    java = str(find_java())
    return _release(java) or _version(java)


def _major(java: str) -> int | None:
    match = re.search(r'^JAVA_VERSION="(\d+)', _release(java), re.MULTILINE) or re.search(r'version "(\d+)', _version(java))
    return int(match[1]) if match else None


@cache
def _release(java: str) -> str:
    """The file `release` of the folder that contains bin/java; empty without one, for example if java is a script.

    Reading it takes no time, while `java -version` starts a JVM.
    """
    file = Path(os.path.realpath(java)).parent.parent / "release"
    return file.read_text(errors="replace") if file.is_file() else ""


@cache
def _version(java: str) -> str:
    return subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr


def pyspark_jar(artifact: str) -> Path:
    """A jar that pyspark contains, in whatever version."""
    import pyspark

    [jar, *_] = sorted((Path(pyspark.__file__).parent / "jars").glob(f"{artifact}-[0-9]*.jar"))
    return jar


def fetch_jars(name: str, coordinates: Iterable[str], exclude: Iterable[str] = ()) -> list[Path]:
    """The jars of `group:artifact:version` coordinates and their dependencies, from the cache or downloaded into it.

    A coordinate that ends with `:type` or `:type:classifier` is a single file without dependencies.

    Args:
        name: names the jars in the progress line and in the cache.
        exclude: groups of dependencies to leave out.

    Returns:
        The jars' paths, sorted.

    Raises:
        JarsNotFoundError: the Maven repository does not have a jar.
        UpsertKafkaError: another failure.
    """
    requested, excluded = sorted(coordinates), sorted(exclude)
    digest = hashlib.sha256(repr((requested, excluded)).encode()).hexdigest()[:12]
    folder = cache_dir() / "jars" / f"{name}-{digest}"
    if not folder.is_dir():
        # Files in this folder are executed, so no other user may write to it.
        cache_dir().mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.parent.mkdir(exist_ok=True)
        with open(folder.parent / f"{name}-{digest}.lock", "w") as lock:
            # A second process waits here and then finds the folder.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                _resolve(name, requested, excluded, folder)
    return sorted(folder.iterdir())


def _resolve(name: str, coordinates: list[str], exclude: list[str], folder: Path) -> None:
    java, ivy = find_java(), pyspark_jar("ivy")
    print(f"Downloading {name} ({', '.join(coordinates)}), once …", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, ignore_cleanup_errors=True) as scratch:
        (Path(scratch) / "ivy.xml").write_text(_module_descriptor(coordinates, exclude))
        # Relative paths, because Ivy reads paths as patterns. A cache of its own, because Ivy's default cache is not safe for two
        # processes at once.
        arguments = ["-ivy", "ivy.xml", "-cache", "cache", "-confs", "default", "-warn"]
        arguments += ["-retrieve", "jars/[artifact]-[revision](-[classifier]).[ext]"]
        if all(coordinate.count(":") > _JAR_COLONS for coordinate in coordinates):
            (Path(scratch) / "settings.xml").write_text(_FILES_ONLY)
            arguments += ["-settings", "settings.xml"]
        command = [str(java), "-jar", str(ivy), *arguments]
        done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
        jars = Path(scratch) / "jars"
        if done.returncode != 0 or not jars.is_dir():
            # Ivy's summary calls a jar "not found" too if the repository could not be asked.
            if unreachable := _UNREACHABLE.search(done.stdout):
                raise UpsertKafkaError(
                    f"The jars of {name} ({', '.join(coordinates)}) could not be downloaded from {unreachable[1]}: "
                    f"{unreachable[2]}. Check the network, Java's proxy settings and the certificates that Java trusts. Without "
                    "network access set `jars:` in the profile."
                )
            if absent := _NOT_FOUND.findall(done.stdout):
                raise JarsNotFoundError(name, [f"{artifact}-{version}.jar" for artifact, version in dict.fromkeys(absent)])
            lines = [
                line.strip()
                for line in (done.stdout + done.stderr).splitlines()
                if "not found" in line or "exception" in line.lower()
            ]
            reason = lines[0] if lines else "the Maven repository did not answer"
            raise UpsertKafkaError(
                f"The jars of {name} ({', '.join(coordinates)}) could not be downloaded: {reason}. "
                "Check the network. Without network access set `jars:` in the profile."
            )
        check_sums(name, coordinates, sorted(jars.glob("*.jar")))
        jars.rename(folder)
    print(f"Downloaded {name}: {len(list(folder.iterdir()))} files", file=sys.stderr, flush=True)


def is_coordinate(text: str) -> bool:
    """Whether the text is a Maven coordinate `group:artifact:version`, possibly with `:type:classifier`, and not a path."""
    return bool(re.fullmatch(r"[\w.-]+(:[\w.-]+){2,4}", text))


def fetch_files(name: str, coordinates: Iterable[str]) -> list[Path]:
    """The jars of `group:artifact:version` coordinates without their dependencies, from the cache or downloaded into it."""
    return fetch_jars(name, [c if c.count(":") > _JAR_COLONS else f"{c}:jar" for c in coordinates])


# The summary at the end of Ivy's output: `:: org.apache.spark#spark-avro_2.13;4.3.0: not found`.
_NOT_FOUND = re.compile(r":: [^#\s]+#([^;\s]+);([^:\s]+): not found")
_UNREACHABLE = re.compile(r"Server access error at url (https?://[^/\s]+)\S* \((.+)\)")
_JAR_COLONS = 2
# Files without dependencies: Ivy does not read their POMs, because not every mirror has the parent POMs.
_FILES_ONLY = (
    '<ivysettings><settings defaultResolver="files"/><resolvers>'
    '<ibiblio name="files" m2compatible="true" usepoms="false"/></resolvers></ivysettings>'
)


def check_sums(name: str, coordinates: list[str], jars: list[Path]) -> None:
    """Refuse jars that differ from those with which this version of the package was tested (checksums.txt).

    A coordinate that is not listed is accepted with its dependencies: Ivy has already verified the checksums of the Maven
    repository. Files that are listed are checked in any case.
    """
    lines = (Path(__file__).with_name("checksums.txt")).read_text().splitlines()
    known = {file: digest for digest, file in (line.split() for line in lines)}
    named = {
        f"{'-'.join([artifact, version, *file[1:]])}.jar" for _, artifact, version, *file in (c.split(":") for c in coordinates)
    }
    all_listed = named <= known.keys()
    for jar in jars:
        if not all_listed and jar.name not in known:
            continue
        if known.get(jar.name) != hashlib.sha256(jar.read_bytes()).hexdigest():
            raise UpsertKafkaError(
                f"The jars of {name} were downloaded and rejected: {jar.name} is not the file that this version was tested with "
                "(SHA-256 differs). Ask the administrator of your Maven repository, or name files that you trust with `jars:` in "
                "the profile."
            )


def _module_descriptor(coordinates: list[str], exclude: list[str]) -> str:
    dependencies = []
    for coordinate in coordinates:
        group, artifact, version, *file = coordinate.split(":")
        names = f"org={quoteattr(group)} name={quoteattr(artifact)} rev={quoteattr(version)}"
        if file:
            kind, classified = quoteattr(file[0]), "".join(f" e:classifier={quoteattr(text)}" for text in file[1:])
            one = f"<artifact name={quoteattr(artifact)} type={kind} ext={kind}{classified}/>"
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
