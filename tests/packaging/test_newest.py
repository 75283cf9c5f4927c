"""The built wheel with the newest versions that pyproject.toml allows today, as pip installs them: init, run, test.

A version that was released after the last `make matrix` is found here.
"""

from __future__ import annotations

import os
import subprocess
import venv
from pathlib import Path

import pytest
import yaml

from dbt.adapters.upsert_kafka.errors import JarsNotFoundError
from dbt.adapters.upsert_kafka.spark.settings import fetch_kafka_jars
from tests.matrix.rows import JARS
from tests.packaging.test_distribution import ROOT, build, output

MODEL = """
{{ config(materialized='upsert_kafka', unique_key='id') }}
select cast(1 as int) as id, 'ann' as name union all select 2, 'bob'
"""
SCHEMA = "models: [{name: users, columns: [{name: id, data_tests: [unique, not_null]}]}]"
# A version of Spark that no repository has.
WITHOUT_JARS = "4.2.999"


class Installation:
    """A virtual environment and a project in it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.project = folder, folder / "shop"
        venv.create(folder / "venv", with_pip=True)

    def pip(self, *packages: str) -> None:
        output([self.program("python"), "-m", "pip", "install", "--disable-pip-version-check", "--quiet", *packages], self.folder)

    def version(self, package: str) -> str:
        return output(
            [self.program("python"), "-c", f"from importlib.metadata import version; print(version({package!r}))"], self.folder
        ).strip()

    def dbt(self, *arguments: str, answers: str = "", folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        # The checkout must not be imported in place of the wheel.
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [self.program("dbt"), *arguments, "--profiles-dir", str(self.folder)]
        return subprocess.run(
            command, cwd=folder or self.project, env={**variables, "NO_COLOR": "1", "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"},
            input=answers, capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip

    def succeed(self, *arguments: str) -> str:
        done = self.dbt(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def set_jars(self, jars: list[str]) -> None:
        """Set `jars:` of the profile that dbt init wrote."""
        path = self.folder / "profiles.yml"
        profiles = yaml.safe_load(path.read_text())
        profiles["shop"]["outputs"]["dev"]["jars"] = jars
        path.write_text(yaml.safe_dump(profiles))

    def program(self, name: str) -> str:
        return str(self.folder / "venv" / "bin" / name)


def test_missing_jar_is_named_with_the_versions_that_have_theirs() -> None:
    with pytest.raises(JarsNotFoundError) as refusal:
        fetch_kafka_jars(WITHOUT_JARS)
    jars = [f"{name}_2.13-{WITHOUT_JARS}.jar" for name in ("spark-avro", "spark-sql-kafka-0-10")]
    assert refusal.value.msg.startswith(
        f"The Maven repository does not have {' and '.join(jars)}, which pyspark {WITHOUT_JARS} needs. Install pyspark 4.0.0"
    )
    assert "\n" not in refusal.value.msg


@pytest.mark.nightly
def test_newest_versions_run_and_test_a_new_project(tmp_path: Path) -> None:
    here = Installation(tmp_path)
    # dbt-core 1.12 needs a package that downloads a binary from another host while it is installed.
    here.pip(str(build("wheel", ROOT, tmp_path)), "dbt-core<1.12")
    created = here.dbt("init", "shop", answers="1\n\n\n\n\n", folder=tmp_path)
    assert created.returncode == 0 and here.project.is_dir(), created.stdout + created.stderr
    target = yaml.safe_load((tmp_path / "profiles.yml").read_text())["shop"]["outputs"]["dev"]
    assert target["type"] == "upsert_kafka" and target["bootstrap_servers"] == "embedded", target
    (here.project / "models" / "users.sql").write_text(MODEL)
    (here.project / "models" / "schema.yml").write_text(SCHEMA)

    spark = here.version("pyspark")
    try:
        fetch_kafka_jars(spark)
    except JarsNotFoundError as error:
        refused = here.dbt("run")
        assert refused.returncode != 0 and error.jars[0] in refused.stdout and "Install pyspark" in refused.stdout, refused.stdout
        here.set_jars([*JARS[max(JARS)]])
    assert ": 2 new, 0 changed, 0 deleted, 0 unchanged in" in here.succeed("run", "--select", "users")
    assert "PASS=2" in here.succeed("test", "--select", "users")
    assert "was not tested" not in here.succeed("run", "--select", "users"), "make matrix has to be run with these versions"
