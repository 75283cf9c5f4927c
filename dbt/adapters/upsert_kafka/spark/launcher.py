"""The command that starts the driver's JVM, kept from one process to the next.

spark-submit starts a JVM (Spark's launcher) that only computes the command line of the driver's JVM. Its result is written to the
user's cache as a script, and used while nothing has changed that the launcher depends on. In doubt spark-submit itself is used.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pyspark
from dbt.adapters.events.logging import AdapterLogger

from dbt.adapters.upsert_kafka import java
from dbt.adapters.upsert_kafka.spark import installation
from dbt.adapters.upsert_kafka.spark.settings import CLASS_PATH, SECRET

logger = AdapterLogger("upsert_kafka")

MAIN = "org.apache.spark.deploy.SparkSubmit"
RESOURCE = "pyspark-shell"
VARIABLES = re.compile("(SPARK|HADOOP|YARN|HIVE|JAVA|JDK|_JAVA)_")


def script_of(settings: Mapping[str, object]) -> Path | None:
    """The script that starts the driver's JVM; its arguments are those of spark-submit. None: spark-submit has to do it.

    Args:
        settings: of the driver, without secrets.
    """
    home, configuration = installation.home(), installation.configuration()
    driver = {name: str(value) for name, value in settings.items() if name.startswith(("spark.driver.", "spark.master"))}
    is_usual = (
        installation.is_plain()
        and driver.get("spark.master", "local").startswith("local")
        # The file stays; a process ends. Jars are no secrets, but one of them is named spark-token-provider.
        and not any(re.search(SECRET, text) for name in driver.keys() - {CLASS_PATH} for text in (name, driver[name]))
    )
    if not is_usual:
        return None
    environment = sorted((name, value) for name, value in os.environ.items() if VARIABLES.match(name))
    identity = [str(java.find_java()), java.build(), pyspark.__version__, str(home), sorted(driver.items()), environment]
    script = java.cache_dir() / f"driver-{hashlib.sha256(repr(identity).encode()).hexdigest()[:16]}.sh"
    try:
        if not script.is_file():
            _write(script, home, configuration, driver)
    except (OSError, ValueError) as error:
        logger.debug(f"spark-submit starts Spark, because its command was not stored: {error!r}")
        return None
    return script


def _write(script: Path, home: Path, configuration: Path, driver: Mapping[str, str]) -> None:
    # What the scripts spark-submit and load-spark-env.sh export.
    exported = {
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(configuration),
        "SPARK_ENV_LOADED": "1",
        "SPARK_SCALA_VERSION": "2.13",
        "PYTHONHASHSEED": "0",
    }
    conf = [word for name, value in driver.items() for word in ("--conf", f"{name}={value}")]
    jvm = [str(java.find_java()), "-Xmx128m", "-cp", str(home / "jars" / "*"), "org.apache.spark.launcher.Main"]
    done = subprocess.run(
        [*jvm, MAIN, *conf, RESOURCE],
        env={**os.environ, **exported}, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    words = done.stdout.partition("\0\n")[2].split("\0")
    if done.returncode != 0 or MAIN not in words:
        raise ValueError(f"Spark's launcher printed no command: {done.stdout[:200]!r} {done.stderr[:200]!r}")
    lines = [
        "#!/bin/sh",
        "# Written by dbt-upsert-kafka from the output of Spark's launcher. Can be deleted.",
    ]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in exported.items()]
    lines.append(f'exec {shlex.join(words[: words.index(MAIN) + 1])} "$@"')
    script.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=script.parent, delete=False) as file:
        file.write("\n".join(lines) + "\n")
    os.chmod(file.name, 0o700)
    os.replace(file.name, script)
