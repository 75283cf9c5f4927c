"""The objects of Spark's own catalog, as JSON and back: the part of `internals` that `project_catalog` uses.

Why: Spark's in-memory catalog does not outlive the process. SQL does not return a whole definition: SHOW CREATE TABLE hides the
values of options whose names look like secrets, and omits what a view remembers about the session that created it.
Missing: Spark has no public way to read, write or observe the definitions of its catalog. All classes here are in
`org.apache.spark.sql.catalyst.catalog`, whose constructors get more parameters at the end in newer versions of Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

Kind = Literal["database", "table", "function"]
Definition = dict[str, Any]

CATALYST = "org.apache.spark.sql.catalyst"
PYTHON_UTILS = "org.apache.spark.api.python.PythonUtils"
SESSION_CATALOG = "spark_catalog"
DEFAULT_DATABASE = "default"


@dataclass(frozen=True)
class CatalogChange:
    """What a statement has created, changed or dropped."""

    kind: Kind
    database: str
    names: tuple[str, ...]
    """Two if a table or function was renamed."""


class _Listener:
    """Gets the events of Spark's catalog in the thread that ran the statement, before the statement returns."""

    class Java:
        implements = (f"{CATALYST}.catalog.ExternalCatalogEventListener",)

    def __init__(self, changed: Callable[[CatalogChange], None]) -> None:
        self._changed = changed

    def onEvent(self, event: Any) -> None:
        event_name = event.getClass().getSimpleName()
        if event_name.endswith("PreEvent"):
            return
        kind: Kind = "database" if "Database" in event_name else "function" if "Function" in event_name else "table"
        database = event.database()
        names = [database] if kind == "database" else [event.name()]
        if event_name.startswith("Rename"):
            names.append(event.newName())
        self._changed(CatalogChange(kind, database, tuple(names)))


def listen(spark: SparkSession, changed: Callable[[CatalogChange], None]) -> None:
    """Call `changed` after each change of the catalog by a statement of any session of this Spark."""
    gateway = SparkContext._gateway
    ensure_callback_server_started(gateway)
    _external_catalog(spark).addListener(_Listener(changed))


def lock_file(path: str) -> Any:
    """Let the JVM have a shared lock of a file until it exits, or until `close()` of the returned object."""
    file = _java("java.io.RandomAccessFile")(path, "rw")
    file.getChannel().lock(0, _java("java.lang.Long").MAX_VALUE, True)
    return file


def all_definitions(spark: SparkSession) -> Iterator[tuple[Kind, str, str]]:
    """Kind, database and name of all definitions of any catalog."""
    catalog = _memory(spark)
    for database in _list(catalog.listDatabases()):
        yield "database", database, database
        yield from (("table", database, name) for name in _list(catalog.listTables(database)))
        yield from (("function", database, name) for name in _list(catalog.listFunctions(database, "*")))


def read_definition(spark: SparkSession, kind: Kind, database: str, name: str) -> Definition | None:
    """The definition that the catalog has now; None if it has none."""
    catalog = _memory(spark)
    if not catalog.databaseExists(database):
        return None
    if kind == "database":
        return _read_database(catalog.getDatabase(database))
    if kind == "function":
        return _read_function(catalog.getFunction(database, name)) if catalog.functionExists(database, name) else None
    return _read_table(catalog.getTable(database, name)) if catalog.tableExists(database, name) else None


def write_definition(spark: SparkSession, definition: Definition) -> None:
    """Create or replace a definition in the catalog, without touching files of tables. No listener is called."""
    catalog, kind, database, name = _memory(spark), definition["kind"], definition["database"], definition["name"]
    if kind == "database":
        if database != DEFAULT_DATABASE:
            catalog.createDatabase(_new_database(definition), True)
        return
    remove_definition(spark, kind, database, name)
    if kind == "function":
        catalog.createFunction(database, _new_function(definition))
    else:
        catalog.createTable(_new_table(definition), True)


def remove_definition(spark: SparkSession, kind: Kind, database: str, name: str) -> None:
    """Remove a definition from the catalog, without touching files of tables. An empty database may stay."""
    catalog = _memory(spark)
    if kind == "function" and catalog.databaseExists(database) and catalog.functionExists(database, name):
        catalog.dropFunction(database, name)
    if kind == "table" and catalog.databaseExists(database) and catalog.tableExists(database, name):
        found = _read_table(catalog.getTable(database, name))
        # The catalog deletes the folder of a managed table.
        catalog.alterTable(_new_table({**found, "database": database, "name": name, "type": "EXTERNAL"}))
        catalog.dropTable(database, name, True, False)


def _read_database(found: Any) -> Definition:
    return {
        "description": found.description(),
        "location": found.locationUri().toString(),
        "properties": _dict(found.properties()),
    }


def _new_database(definition: Mapping[str, Any]) -> Any:
    given = [
        definition["database"],
        definition["description"],
        _java("java.net.URI")(definition["location"]),
        _scala_map(definition["properties"]),
    ]
    return _construct("catalog.CatalogDatabase", given)


def _read_function(found: Any) -> Definition:
    resources = _list(found.resources())
    return {
        "class": found.className(),
        "resources": [[resource.resourceType().resourceType(), resource.uri()] for resource in resources],
    }


def _new_function(definition: Mapping[str, Any]) -> Any:
    resource, kinds = _class("catalog.FunctionResource"), _class("catalog.FunctionResourceType")
    resources = [resource(kinds.fromString(kind), uri) for kind, uri in definition["resources"]]
    identifier = _class("FunctionIdentifier")(definition["name"], _option(definition["database"]), _option(SESSION_CATALOG))
    return _construct("catalog.CatalogFunction", [identifier, definition["class"], _scala_seq(resources)])


def _read_table(found: Any) -> Definition:
    storage, bucket = found.storage(), _value(found.bucketSpec())
    location = _value(storage.locationUri())
    return {
        "type": found.tableType().name(),
        "location": None if location is None else location.toString(),
        "input_format": _value(storage.inputFormat()),
        "output_format": _value(storage.outputFormat()),
        "serde": _value(storage.serde()),
        "compressed": storage.compressed(),
        "options": _dict(storage.properties()),
        "schema": json.loads(found.schema().json()),
        "provider": _value(found.provider()),
        "partition_columns": _list(found.partitionColumnNames()),
        "buckets": bucket
        and {
            "number": bucket.numBuckets(),
            "columns": _list(bucket.bucketColumnNames()),
            "sort_columns": _list(bucket.sortColumnNames()),
        },
        "owner": found.owner(),
        "create_time": found.createTime(),
        "create_version": found.createVersion(),
        "properties": _dict(found.properties()),
        "view_text": _value(found.viewText()),
        "comment": _value(found.comment()),
    }


def _new_table(definition: Mapping[str, Any]) -> Any:
    location, buckets = definition["location"], definition["buckets"]
    storage = _construct(
        "catalog.CatalogStorageFormat",
        [
            _option(location and _java("java.net.URI")(location)),
            _option(definition["input_format"]),
            _option(definition["output_format"]),
            _option(definition["serde"]),
            definition["compressed"],
            _scala_map(definition["options"]),
        ],
    )
    bucket = buckets and _class("catalog.BucketSpec")(
        buckets["number"], _scala_seq(buckets["columns"]), _scala_seq(buckets["sort_columns"])
    )
    return _construct(
        "catalog.CatalogTable",
        [
            _class("TableIdentifier")(definition["name"], _option(definition["database"]), _option(SESSION_CATALOG)),
            getattr(_class("catalog.CatalogTableType"), definition["type"])(),
            storage,
            _java("org.apache.spark.sql.types.DataType").fromJson(json.dumps(definition["schema"])),
            _option(definition["provider"]),
            _scala_seq(definition["partition_columns"]),
            _option(bucket),
            definition["owner"],
            definition["create_time"],
            -1,
            definition["create_version"],
            _scala_map(definition["properties"]),
            # Statistics: Py4J can not pass the large numbers of Scala that they consist of.
            _option(None),
            _option(definition["view_text"]),
            _option(definition["comment"]),
        ],
    )


def _construct(name: str, given: Sequence[Any]) -> Any:
    """A new object of a case class; parameters that are not given get their defaults."""
    return _class(name)(*given, *_defaults(SparkContext._gateway, name, len(given)))


def _external_catalog(spark: SparkSession) -> Any:
    return spark._jsparkSession.sharedState().externalCatalog()


def _memory(spark: SparkSession) -> Any:
    """The catalog itself, below the one that calls listeners."""
    return _external_catalog(spark).unwrapped()


def _class(name: str) -> Any:
    """A class of Spark's catalog."""
    return _java_class(SparkContext._gateway, f"{CATALYST}.{name}")


def _java(name: str) -> Any:
    return _java_class(SparkContext._gateway, name)


@cache
def _java_class(gateway: Any, name: str) -> Any:
    """Py4J asks the JVM for each part of a name."""
    found = gateway.jvm
    for part in name.split("."):
        found = getattr(found, part)
    return found


@cache
def _defaults(gateway: Any, name: str, given: int) -> list[Any]:
    """The values of the parameters of a case class after the first `given` ones."""
    cls = _class(name)
    count = cls._java_lang_class.getConstructors()[0].getParameterCount()
    return [getattr(cls, f"apply$default${number + 1}")() for number in range(given, count)]


def _option(value: Any) -> Any:
    return _java("scala.Option").apply(value)


def _value(option: Any) -> Any:
    return option.get() if option.isDefined() else None


def _dict(scala_map: Any) -> dict[str, str]:
    return dict(_java("scala.jdk.javaapi.CollectionConverters").asJava(scala_map))


def _list(scala_seq: Any) -> list[Any]:
    return list(_java("scala.jdk.javaapi.CollectionConverters").asJava(scala_seq))


def _scala_map(values: Mapping[str, str]) -> Any:
    """One call for all entries: Py4J would need one for each."""
    mapper, map_class = _java("com.fasterxml.jackson.databind.ObjectMapper")(), _java("java.util.HashMap")._java_lang_class
    return _java(PYTHON_UTILS).toScalaMap(mapper.readValue(json.dumps(values), map_class))


def _scala_seq(values: Sequence[Any]) -> Any:
    return _java(PYTHON_UTILS).toSeq(list(values))
