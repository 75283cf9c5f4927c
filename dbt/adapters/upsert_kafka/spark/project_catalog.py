"""The catalog of a project: Spark's in-memory catalog, with each definition in a small file of the project's folder.

Several processes can use one project: a definition is written when a statement has changed it, with an atomic rename, and read
again when another process has changed its file. Rows are in the folder `warehouse`. Leaves to `internals` the objects of Spark's
catalog, and to `session` when it is attached.

A killed process leaves nothing that stops the next one: no half-written definition, and a table folder without a definition is
deleted when a table of its name is created.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, unquote, urlsplit

from dbt.adapters.events.logging import AdapterLogger
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.spark import catalog_internals, derby_import
from dbt.adapters.upsert_kafka.spark.catalog_internals import CatalogChange, Kind

logger = AdapterLogger("upsert_kafka")

VERSION = 1
FOLDER, WAREHOUSE, LOCK = "catalog", "warehouse", "catalog.lock"
DATABASE_FILE = "database.json"
SUFFIXES: dict[Kind, str] = {"table": ".table.json", "function": ".function.json"}
LONGEST_NAME = 150
"""Of a file; longer names are cut and get a hash."""
RECENT_NANOSECONDS = 100_000_000
"""A folder that changed less than this ago is read again: file systems have coarse clocks."""
ENDING_SECONDS = 10.0
"""For which the JVM of a killed process may go on. A new process waits for it if there are table folders without a definition."""
LOCATION_EXISTS = ("LOCATION_ALREADY_EXISTS", "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION")

Stamp = tuple[int, int, int]
Key = tuple[Kind, str, str]
"""Kind, database and name of a definition."""


class ProjectCatalog:
    """The definitions of one project, in files and in the Spark of this process."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / FOLDER
        self._warehouse = state_dir / WAREHOUSE
        self._lock = threading.RLock()
        self._spark: SparkSession | None = None
        self._known: dict[Path, tuple[Stamp, Key]] = {}
        """The files whose definitions Spark has."""
        self._folders: dict[Path, int] = {}
        """When each folder had changed last, when it was last read."""
        self._errors: list[str] = []
        self._jvm_file: Any = None
        self._file = _open_lock(state_dir)
        self._orphans: set[Path] = set()
        if self._becomes_alone():
            if not self._folder.exists():
                derby_import.import_derby(state_dir, self._folder)
            self._delete_half_written()
            self._orphans = self._find_orphans()
        fcntl.lockf(self._file, fcntl.LOCK_SH)

    def attach(self, spark: SparkSession, lock_jvm: bool = True) -> None:
        """Load the definitions into a Spark that has just started, and write every later change.

        Args:
            lock_jvm: False for a JVM that other processes use too. The resident dbt cancels the jobs of a killed process.
        """
        self._spark = spark
        # If only the Python process is killed, its JVM goes on for a moment. The table folders that it writes are no orphans.
        if lock_jvm:
            self._jvm_file = catalog_internals.lock_file(self._file.name)
        self.refresh()
        catalog_internals.listen(spark, self._changed)

    def close(self) -> None:
        """Release the locks; Spark has been stopped."""
        if self._jvm_file is not None:
            try:
                self._jvm_file.close()
            except (Py4JError, OSError) as error:
                logger.debug(f"The JVM had ended before its lock was released: {error!r}")
        self._file.close()

    def refresh(self) -> None:
        """Read the definitions that another process has changed."""
        with self._lock:
            for folder in self._changed_folders():
                self._read(folder)

    def raise_errors(self) -> None:
        """Report a definition that could not be written by a statement that ran before."""
        with self._lock:
            errors, self._errors = self._errors, []
        if errors:
            raise UpsertKafkaError(f"the project's catalog could not be written: {'; '.join(errors)}. Run again.")

    def delete_orphan(self, error: AnalysisException) -> bool:
        """Delete the table folder that a killed process left, if `error` is that it exists; False for other errors.

        Raises:
            UpsertKafkaError: another process may be creating this table.
        """
        if error.getCondition() not in LOCATION_EXISTS:
            return False
        folder = next(
            (Path(path) for path in re.findall(r"/[^'`\"\s]+", str(error)) if self._warehouse in Path(path).parents), None
        )
        if folder is None:
            return False
        if folder not in self._orphans:
            raise UpsertKafkaError(
                f"'{folder}' exists and is not the folder of a table. Another dbt process may be creating this table: wait until "
                "it has ended and run again. If none is running, delete the folder."
            ) from error
        self._orphans.discard(folder)
        logger.debug(f"Deleting {folder}: a process was killed before it had created this table")
        shutil.rmtree(folder)
        return True

    def _changed(self, change: CatalogChange) -> None:
        """Write the definitions that a statement of this process has changed. Called by Spark inside of the statement."""
        try:
            with self._lock:
                for name in change.names:
                    self._save(change.kind, change.database, name)
        except Exception as error:  # Spark would only log it
            logger.debug(f"Catalog change {change}: {error!r}")
            self._errors.append(f"{change.kind} {change.database}.{'/'.join(change.names)}: {error}")

    def _save(self, kind: Kind, database: str, name: str) -> None:
        assert self._spark is not None
        path = _path(self._folder, kind, database, name)
        definition = catalog_internals.read_definition(self._spark, kind, database, name)
        if definition is None:
            if kind == "database":
                shutil.rmtree(path.parent, ignore_errors=True)
            path.unlink(missing_ok=True)
            self._known.pop(path, None)
            return
        _write(path, _document(kind, database, name, definition))
        self._known[path] = (_stamp(path), (kind, database, name))

    def _changed_folders(self) -> Iterator[Path]:
        """The folders of databases that have changed since they were read."""
        if not self._folder.is_dir():
            return
        for folder in sorted(path for path in self._folder.iterdir() if path.is_dir()):
            changed = folder.stat().st_mtime_ns
            if self._folders.get(folder) != changed:
                yield folder
                is_recent = time.time_ns() - changed < RECENT_NANOSECONDS
                self._folders[folder] = -1 if is_recent else changed
        for folder in [folder for folder in self._folders if not folder.is_dir()]:
            yield folder
            del self._folders[folder]

    def _read(self, folder: Path) -> None:
        """Make Spark's definitions of one database those of its files."""
        assert self._spark is not None
        files = {path: _stamp(path) for path in folder.glob("*.json")} if folder.is_dir() else {}
        gone = [path for path in self._known if path.parent == folder and path not in files]
        for path in gone:
            _, key = self._known.pop(path)
            catalog_internals.remove_definition(self._spark, *key)
        # The database comes first.
        for path, stamp in sorted(files.items(), key=lambda item: item[0].name != DATABASE_FILE):
            if path in self._known and self._known[path][0] == stamp:
                continue
            found = _load(path)
            if found is not None:
                catalog_internals.write_definition(self._spark, found)
                self._known[path] = (stamp, (found["kind"], found["database"], found["name"]))

    def _becomes_alone(self) -> bool:
        """Whether no other process uses the project. Waits if a killed process may have left a table folder."""
        until = time.monotonic() + ENDING_SECONDS
        while not _is_alone(self._file):
            if time.monotonic() > until or not self._find_orphans():
                return False
            time.sleep(0.1)
        return True

    def _delete_half_written(self) -> None:
        """Delete the files of definitions that a killed process has not renamed. Nobody else uses the project now."""
        for path in self._folder.glob("*/.*") if self._folder.is_dir() else ():
            path.unlink(missing_ok=True)

    def _find_orphans(self) -> set[Path]:
        """The table folders without a definition. If nobody else uses the project, nobody is writing to them."""
        locations = set()
        for path in self._folder.glob(f"*/[!.]*{SUFFIXES['table']}") if self._folder.is_dir() else ():
            if (found := _load(path)) is not None:
                locations.add(unquote(urlsplit(found["location"] or "").path).rstrip("/"))
        folders = self._warehouse.glob("*.db/*") if self._warehouse.is_dir() else ()
        return {folder for folder in folders if folder.is_dir() and str(folder) not in locations}


def export(spark: SparkSession, folder: Path) -> None:
    """Write the definitions of any catalog of Spark into an empty folder."""
    for kind, database, name in catalog_internals.all_definitions(spark):
        definition = catalog_internals.read_definition(spark, kind, database, name)
        if definition is not None:
            _write(_path(folder, kind, database, name), _document(kind, database, name, definition))


def _document(kind: Kind, database: str, name: str, definition: dict[str, Any]) -> dict[str, Any]:
    return {"version": VERSION, "kind": kind, "database": database, "name": name, **definition}


def _path(catalog: Path, kind: Kind, database: str, name: str) -> Path:
    folder = catalog / _file_name(database)
    return folder / DATABASE_FILE if kind == "database" else folder / f"{_file_name(name)}{SUFFIXES[kind]}"


def _write(path: Path, document: dict[str, Any]) -> None:
    """Write a file that is complete whenever it exists."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    with open(os.open(new, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
        json.dump(document, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


def _load(path: Path) -> dict[str, Any] | None:
    """A definition; None if another process has just deleted it."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise UpsertKafkaError(f"'{path}' is not a definition of the project's catalog. Delete this file. ({error})") from error
    if found.get("version") != VERSION:
        raise UpsertKafkaError(
            f"'{path}' has version {found.get('version')}, this dbt-upsert-kafka reads version {VERSION}. Upgrade "
            "dbt-upsert-kafka, or delete the folder and build the project again."
        )
    return found


def _open_lock(state_dir: Path) -> IO[str]:
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    return open(state_dir / LOCK, "a+")


def _is_alone(file: IO[str]) -> bool:
    """Whether no other process uses the project; then none starts to before the lock is shared."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _file_name(name: str) -> str:
    """A file name for any name, equal for names that are equal to Spark.

    >>> _file_name("Orders"), _file_name("a/b")
    ('orders', 'a%2Fb')
    """
    text = quote(name.lower(), safe="").replace(".", "%2E")
    return (
        text if len(text) <= LONGEST_NAME else f"{text[:LONGEST_NAME]}-{hashlib.sha256(name.lower().encode()).hexdigest()[:16]}"
    )


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except FileNotFoundError:
        return (0, 0, 0)
    return found.st_mtime_ns, found.st_ino, found.st_size
