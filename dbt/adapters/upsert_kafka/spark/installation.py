"""Whether Spark is configured outside of the profile: in files of its installation, or with variables for spark-submit."""

from __future__ import annotations

import os
from pathlib import Path

import pyspark

# With these spark-submit does more than to start the launcher, or the launcher reads files.
UNUSUAL_VARIABLES = ("PYSPARK_SUBMIT_ARGS", "SPARK_PREPEND_CLASSES", "SPARK_TESTING", "SPARK_LAUNCHER_OPTS")
UNUSUAL_FILES = ("spark-env.sh", "spark-defaults.conf", "java-opts")


def home() -> Path:
    """The folder of pyspark, which is the installation that it uses unless SPARK_HOME is another one."""
    return Path(pyspark.__file__).parent


def configuration() -> Path:
    """The folder of the configuration files."""
    return Path(os.environ.get("SPARK_CONF_DIR") or home() / "conf")


def is_plain() -> bool:
    """Whether nothing but the command line configures a driver."""
    return (
        Path(os.environ.get("SPARK_HOME") or home()).resolve() == home().resolve()
        and not any(os.environ.get(variable) for variable in UNUSUAL_VARIABLES)
        and not any((configuration() / file).exists() for file in UNUSUAL_FILES)
    )
