"""Imports the Derby database that was the catalog of a project up to version 0.1.0, once, into the files of `project_catalog`.

In a process of its own: a Spark has one kind of catalog. The database stays where it is and is not read again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from dbt.adapters.events.logging import AdapterLogger

from dbt.adapters.upsert_kafka.errors import UpsertKafkaError

logger = AdapterLogger("upsert_kafka")

DERBY = "metastore"
"""The folder of the database, in the project's folder."""
SECONDS = 300


def import_derby(state_dir: Path, catalog: Path) -> None:
    """Write the definitions of the project's Derby database into the new folder `catalog`; nothing if there is none.

    Raises:
        UpsertKafkaError: the database can't be read, for example because a dbt process of an older version uses it.
    """
    if not (state_dir / DERBY).is_dir():
        return
    logger.info(f"Importing the tables and views of '{state_dir / DERBY}' into '{catalog}'. This is done once.")
    new = catalog.with_name(f"{catalog.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(mode=0o700)
    command = [sys.executable, "-m", __name__, str(state_dir), str(new)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS, cwd=new)
    if done.returncode != 0:
        logger.debug(done.stderr)
        raise UpsertKafkaError(
            f"the catalog of an earlier version in '{state_dir / DERBY}' can't be imported. Wait until no older dbt process uses "
            "it and run again, or delete this folder to start with an empty catalog and build the project again."
        )
    shutil.rmtree(new / "artifacts", ignore_errors=True)
    os.replace(new, catalog)


def _export(state_dir: Path, folder: Path) -> None:
    from pyspark.sql import SparkSession

    from dbt.adapters.upsert_kafka.spark import project_catalog

    url = f"jdbc:derby:;databaseName={state_dir / DERBY}"
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.catalogImplementation", "hive").config("spark.hadoop.javax.jdo.option.ConnectionURL", url)
    builder = builder.config("spark.sql.warehouse.dir", str(state_dir / project_catalog.WAREHOUSE))
    builder = builder.config("spark.driver.extraJavaOptions", "-Dderby.stream.error.file=/dev/null")
    project_catalog.export(builder.getOrCreate(), folder)


if __name__ == "__main__":
    _export(Path(sys.argv[1]), Path(sys.argv[2]))
