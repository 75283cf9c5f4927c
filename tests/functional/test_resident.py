"""The resident dbt, `upsert-kafka dbt`: each command behaves as with plain dbt, or one line says what happened.

The tests of `make test` share one resident, because a JVM takes most of the time. Those that kill or replace it run last.
"""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dbt.adapters.upsert_kafka.resident import protocol
from tests.dbt_project import Project
from tests.functional.resident_project import SECONDS, ResidentProject, captured, is_running, wait_until
from tests.functional.topic_writer import Message, write

nightly = pytest.mark.nightly

SINK = "{{ config(materialized='upsert_kafka', unique_key='id') }} "
# Sleeps in a task of Spark, so it can be interrupted.
SLOW = "{{ config(materialized='table') }} SELECT reflect('java.lang.Thread', 'sleep', 120000L) AS slept"
PYTHON_MODEL = """
def model(dbt, session):
    import prices
    from pyspark.sql.functions import udf
    dbt.config(materialized="table")
    return session.range(1).select(udf(prices.price)("id").alias("price"))
"""
# A task that counts in the JVM while it runs, for at most 20 minutes, in a thread that the command does not wait for.
BEATS = "SELECT reflect('java.lang.System', 'setProperty', 'NAME', string(id)), reflect('java.lang.Thread', 'sleep', 50L)"
LEAVING_MODEL = f"""
def model(dbt, session):
    import time
    from pyspark import InheritableThread
    dbt.config(materialized="table")
    query = "{BEATS.replace("NAME", "leaving")} FROM range(0, 24000, 1, 1)"
    thread = InheritableThread(lambda: session.sql(query).collect())
    thread.daemon = True
    thread.start()
    while session.sql("SELECT reflect('java.lang.System', 'getProperty', 'leaving') AS n").first().n == "null":
        time.sleep(0.1)
    return session.range(1)
"""
# Ends when the test writes the file.
WAITING_MODEL = """
def model(dbt, session):
    import os, time
    dbt.config(materialized="table")
    while not os.path.exists("go"):
        time.sleep(0.1)
    return session.sql("SELECT 'NAME' AS x")
"""
FILES = {
    "models/orders.sql": SINK + "SELECT 1 AS id, '{{ label() }}' AS name",
    "models/customers.sql": SINK.replace("'id'", "'id', sink_delivery_guarantee='exactly-once'")
    + "SELECT 2 AS id, 'two' AS name",
    "models/slow.sql": SLOW,
    "models/beats.sql": "{{ config(materialized='table') }} " + BEATS.replace("NAME", "beats") + " FROM range(0, 24000, 1, 1)",
    "models/others.sql": "{{ config(materialized='table') }} " + BEATS.replace("NAME", "others") + " FROM range(0, 24000, 1, 1)",
    "models/leaving.py": LEAVING_MODEL,
    **{f"models/{name}.py": WAITING_MODEL.replace("NAME", name) for name in "ab"},
    "models/placed.sql": SINK.replace("'id'", "'id', partitions=2, sink_partitioner='placing.place'")
    + "SELECT '{{ label() }}' AS id, 'x' AS name",
    "models/priced.py": PYTHON_MODEL,
    "models/broken.sql": "{{ config(materialized='table') }} SELECT id / 0 AS x FROM {{ ref('orders') }}",
    "macros/label.sql": "{% macro label() %}one{% endmacro %}",
    "modules/prices.py": "def price(id):\n    return 'cheap'\n",
    "modules/partitions.py": "PARTITION = 0",
    "modules/placing.py": "import partitions\ndef place(key, value, count):\n    return partitions.PARTITION",
}
PLAIN = [sys.executable, "-c", "from dbt.cli.main import cli; cli()"]
MASTER = "local[4]"
"""More than two tasks at once: some tests look at tasks that run."""
STARTING = "starting a resident dbt for this project"


@pytest.fixture(scope="module")
def dbt(tmp_path_factory: pytest.TempPathFactory, broker: str) -> Iterator[ResidentProject]:
    """The resident that most tests share, with a Spark that runs."""
    project = Project(tmp_path_factory.mktemp("resident") / "project", broker, schema="resident", master=MASTER).write(FILES)
    shared = ResidentProject(project)
    try:
        output = shared.succeed("run", "-s", "orders", "customers")
        assert output.count(STARTING) == 1, output
        yield shared
    finally:
        shared.stop()


@pytest.fixture
def own(tmp_path: Path, broker: str, schema_name: str) -> Iterator[ResidentProject]:
    """A project with a resident of its own, which the test may kill."""
    made = ResidentProject(Project(tmp_path / "project", broker, schema=schema_name, master=MASTER).write(FILES))
    yield made
    made.stop()


def test_later_commands_use_the_running_resident(dbt: ResidentProject) -> None:
    before = dbt.processes()
    output = dbt.succeed("run", "-s", "orders")
    assert STARTING not in output and "1 unchanged" in output
    assert dbt.topic("orders") == ["one"]
    assert "Nothing to do" in dbt.succeed("test")
    assert dbt.processes() == before and before[1] != 0
    status = dbt.status()
    assert list(status) == ["Resident dbt", "Spark", "Commands", "Ends", "Log"], status
    assert status["Commands"].strip() == "3 so far, 0 running" and status["Ends"].strip() == "30 minutes after the last command"


def test_output_and_exit_codes_are_those_of_plain_dbt(dbt: ResidentProject) -> None:
    """Success, a failed model, and a usage error."""
    for arguments in (["ls", "--output", "json"], ["run", "-s", "nothing", "--no-such-flag"], ["--version"]):
        plain, ours = (captured(command, dbt) for command in ([*PLAIN, *arguments], dbt.command(*arguments)))
        shown = [re.sub(r"\d\d:\d\d:\d\d|\S*/dbt\b", "", done.stdout) for done in (plain, ours)]
        assert shown[0] == shown[1] and ours.returncode == plain.returncode
        assert ("Usage: dbt run" in ours.stderr) == ("Usage:" in plain.stderr)
    code, output = dbt.run("run", "-s", "broken")
    assert code == 1 and "DIVIDE_BY_ZERO" in output


def test_pipes_end_with_the_command(dbt: ResidentProject) -> None:
    # All output comes before the command ends, also with both streams in one pipe.
    lines = dbt.shell("{ $DBT ls; echo end; } 2>&1 | cat").stdout.splitlines()
    assert lines[-1] == "end" and "shop.orders" in lines
    # A reader that has ended: as with plain dbt, whose exit code depends on the buffer, and the command does not stay.
    plain, ours = (dbt.shell(f"{dbt_ls} | true; echo ${{PIPESTATUS[0]}}") for dbt_ls in (shlex.join([*PLAIN, "ls"]), "$DBT ls"))
    assert ours.stdout == plain.stdout and ours.stdout != "", (ours, plain)
    wait_until(dbt.has_no_command)
    # The output of a run that starts after Spark also ends: no process of Spark has the pipe.
    assert "Completed successfully" in dbt.shell("$DBT run -s orders 2>&1 | cat").stdout


def test_two_commands_at_once_use_one_spark_and_one_catalog(dbt: ResidentProject) -> None:
    processes = dbt.processes()
    commands = [dbt.start("run", "-s", name) for name in "ab"]
    for command in commands:
        dbt.wait_for("START python table model", command)
    (dbt.folder / "go").touch()
    for command in commands:
        output, _ = command.communicate(timeout=SECONDS)
        assert command.returncode == 0, output
    output = dbt.succeed("show", "--inline", "SELECT * FROM {{ ref('a') }} UNION ALL SELECT * FROM {{ ref('b') }} ORDER BY x")
    assert re.findall(r"\| ([ab]) ", output) == ["a", "b"]
    assert dbt.processes() == processes


def test_edited_macros_and_modules_are_used(dbt: ResidentProject) -> None:
    def priced() -> str:
        dbt.succeed("run", "-s", "priced", "placed")
        return dbt.succeed("show", "--inline", "SELECT * FROM {{ ref('priced') }}")

    assert "cheap" in priced()
    dbt.project.write(
        {
            "macros/label.sql": "{% macro label() %}edited{% endmacro %}",
            "modules/prices.py": "def price(id):\n    return 'expensive'\n",
            "modules/partitions.py": "PARTITION = 1",
        }
    )
    assert "expensive" in priced()
    assert {(record.key, record.partition) for record in dbt.records("placed")} == {(b'{"id":"one"}', 0), (b'{"id":"edited"}', 1)}
    dbt.succeed("run", "-s", "orders")
    assert dbt.topic("orders") == ["one", "edited"]


def test_ctrl_c_and_sigterm_cancel_the_command_and_nothing_else(dbt: ResidentProject) -> None:
    others, beats = dbt.start("run", "-s", "others"), dbt.start("run", "-s", "beats")
    for command in (others, beats):
        dbt.wait_for("START sql table model", command)
    wait_until(lambda: "null" not in dbt.beats("others", "beats"))
    code, status = dbt.run("--status")
    assert (
        code == 0
        and "2 running" in status
        and {"dbt run -s others", "dbt run -s beats"} <= set(map(str.strip, status.splitlines()))
    )
    for name, command, running in (("SIGINT", beats, "others"), ("SIGTERM", others, None)):
        command.send_signal(signal.Signals[name])
        output, _ = command.communicate(timeout=SECONDS)
        assert command.returncode == 2 and f"{name}: the command was stopped." in output and "Traceback" not in output, output
        assert dbt.growing("others", "beats") == ([running] if running else [])


def test_command_that_ends_leaves_no_job(dbt: ResidentProject) -> None:
    processes = dbt.processes()
    dbt.succeed("run", "-s", "leaving")
    assert dbt.growing("leaving") == []
    assert int(dbt.beats("leaving")[0]) > 0 and dbt.processes() == processes


@pytest.mark.nightly
def test_client_killed_during_a_command_cancels_it(dbt: ResidentProject) -> None:
    code, _ = dbt.interrupt(signal.SIGKILL)
    assert code == -signal.SIGKILL
    wait_until(dbt.has_no_command)


def test_killed_jvm_and_rotated_secret_start_spark_again(dbt: ResidentProject) -> None:
    """One test for both: each start of Spark takes seconds."""
    resident, spark = dbt.processes()
    os.kill(spark, signal.SIGKILL)
    wait_until(lambda: not is_running(spark))
    dbt.project.profile["kafka"] = {"ssl.keystore.password": "{{ env_var('SECRET') }}"}
    dbt.project.save_profile()
    assert dbt.succeed("run", "-s", "orders", SECRET="first").count("Spark's JVM has ended: it is started again") == 1
    _, second = dbt.processes()
    output = dbt.succeed("run", "-s", "orders", SECRET="hunter2")
    assert output.count("Spark is started again, because DBT_UPSERT_KAFKA_SECRET_SSL_KEYSTORE_PASSWORD changed") == 1
    assert "hunter2" not in output and dbt.processes()[0] == resident and second not in (spark, dbt.processes()[1])
    assert "Spark is started again" not in dbt.succeed("run", "-s", "orders", SECRET="hunter2")
    del dbt.project.profile["kafka"]
    dbt.project.save_profile()


@pytest.mark.nightly
def test_changed_spark_settings_start_spark_again(dbt: ResidentProject) -> None:
    # With the profile that the last test has left.
    dbt.succeed("run", "-s", "orders")
    resident, spark = dbt.processes()
    dbt.project.profile["spark"]["spark.sql.shuffle.partitions"] = 3
    dbt.project.save_profile()
    output = dbt.succeed("run", "-s", "orders")
    assert output.count("Spark is started again, because spark.sql.shuffle.partitions changed") == 1
    assert dbt.processes()[0] == resident and dbt.processes()[1] != spark
    wait_until(lambda: not is_running(spark))


@nightly
def test_outside_of_a_project_plain_dbt_runs(tmp_path: Path, own: ResidentProject) -> None:
    done = captured(own.command("--version"), own, tmp_path)
    assert done.returncode == 0 and "Core:" in done.stdout
    assert done.stderr.count("there is no dbt_project.yml here, so there is no resident dbt. Plain dbt is used.") == 1


def test_stop_ends_the_resident_and_spark(dbt: ResidentProject) -> None:
    processes = dbt.processes()
    assert "stopped" in dbt.succeed("--stop")
    wait_until(lambda: not any(map(is_running, processes)))
    assert dbt.status() == {} and dbt.run("--stop") == (0, "upsert-kafka dbt: no resident dbt runs for this project.\n")


@nightly
def test_environment_directory_umask_and_time_zone_are_those_of_the_client(own: ResidentProject) -> None:
    own.project.write({"models/seen.sql": "SELECT '{{ env_var('SEEN') }} {{ run_started_at.astimezone().tzname() }}' AS x"})
    (own.folder / "below").mkdir()
    own.succeed("ls", SEEN="nothing")
    done = own.shell(
        "cd below; umask 027; export SEEN=first TZ=Asia/Tokyo; $DBT compile -s seen --profiles-dir .. --target-path seen"
    )
    assert done.returncode == 0 and "first JST" in done.stdout, done.stdout + done.stderr
    assert (own.folder / "seen" / "manifest.json").stat().st_mode & 0o777 == 0o640
    assert "second UTC" in own.succeed("compile", "-s", "seen", SEEN="second", TZ="UTC")


@nightly
def test_colours_on_a_terminal(own: ResidentProject) -> None:
    environment = {name: value for name, value in own.environment.items() if name not in ("NO_COLOR", "DBT_USE_COLORS")}
    environment["TERM"] = "xterm"
    own.succeed("parse")
    shown = {}
    for name, command in {"ours": own.command("parse"), "plain": [*PLAIN, "parse"]}.items():
        controller, terminal = pty.openpty()
        process = subprocess.Popen(
            command, cwd=own.folder, env={**environment, "TERM": "xterm"}, stdout=terminal, stderr=terminal
        )
        os.close(terminal)
        output = b""
        try:
            while part := os.read(controller, 65536):
                output += part
        except OSError:  # Linux: the terminal has no writer any more
            shown[name] = re.sub(rb"\d+[:.]\d+(:\d+)?|\d+", b"", output)
        assert process.wait() == 0
    assert shown["ours"] == shown["plain"] and b"\x1b[" in shown["ours"]


@nightly
def test_other_settings_during_a_command_get_a_spark_of_their_own(own: ResidentProject) -> None:
    slow = own.start("run", "-s", "slow")
    own.wait_for("START sql table model", slow)
    own.project.profile["spark"]["spark.sql.shuffle.partitions"] = 3
    own.project.save_profile()
    output = own.succeed("run", "-s", "orders")
    assert "Another command uses the resident's Spark with other settings (spark.sql.shuffle.partitions)" in output
    assert own.topic("orders") == ["one"]
    slow.send_signal(signal.SIGINT)
    assert slow.wait(SECONDS) == 2


@nightly
def test_another_target_is_used(own: ResidentProject) -> None:
    own.succeed("run", "-s", "orders")
    profile = own.folder / "profiles.yml"
    text = profile.read_text()
    target = text[text.index("    dev:") : text.index("  target:")]
    other = re.sub(r"schema: .*", "schema: other_target", target.replace("    dev:", "    other:"))
    profile.write_text(text.replace(target, target + other))
    assert "other_target.orders" in own.succeed("run", "-s", "orders", "--target", "other")


@nightly
def test_upgraded_packages_start_the_resident_again(own: ResidentProject, tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    (packages / "example-1.0.dist-info").mkdir(parents=True)
    more = {"PYTHONUSERBASE": str(tmp_path)}
    site = Path(
        subprocess.check_output(
            [sys.executable, "-c", "import site; print(site.getusersitepackages())"], env={**os.environ, **more}, text=True
        ).strip()
    )
    shutil.copytree(packages, site)
    own.succeed("ls", **more)
    assert "started again" not in own.succeed("ls", **more)
    (site / "example-1.0.dist-info").rename(site / "example-1.1.dist-info")
    output = own.succeed("ls", **more)
    assert output.count("the installed packages have changed: the resident dbt is started again.") == 1
    assert "started again" not in own.succeed("ls", **more)


@nightly
def test_changed_start_variable_starts_the_resident_again(own: ResidentProject) -> None:
    own.succeed("ls")
    assert "PYTHONHASHSEED changed: the resident dbt is started again." in own.succeed("ls", PYTHONHASHSEED="1")


@nightly
def test_killed_resident_ends_its_commands_and_is_started_again(own: ResidentProject) -> None:
    slow = own.start("run", "-s", "slow")
    own.wait_for("START sql table model", slow)
    resident, spark = own.processes()
    os.kill(resident, signal.SIGKILL)
    output, _ = slow.communicate(timeout=SECONDS)
    assert slow.returncode == 2 and output.count("the resident dbt was killed, and this command with it. Run it again.") == 1
    wait_until(lambda: not is_running(spark))
    assert STARTING in own.succeed("run", "-s", "orders")


@nightly
def test_jvm_killed_during_a_command_is_started_again(own: ResidentProject) -> None:
    slow = own.start("run", "-s", "slow")
    own.wait_for("START sql table model", slow)
    resident, spark = own.processes()
    os.kill(spark, signal.SIGKILL)
    assert slow.wait(SECONDS) == 1
    assert "Spark's JVM has ended: it is started again" in own.succeed("run", "-s", "orders")
    assert own.processes()[0] == resident


def processor_ticks(process: str) -> int:
    """utime and stime; the name before them may have spaces."""
    return sum(map(int, Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]))


@nightly
def test_killed_command_leaves_no_job_and_no_table(own: ResidentProject) -> None:
    own.succeed("run", "-s", "orders")
    beats = own.start("run", "-s", "beats")
    own.wait_for("START sql table model", beats)
    processes = own.processes()
    wait_until(lambda: own.beats("beats") != ["null"])
    children = Path(f"/proc/{processes[0]}/task/{processes[0]}/children")
    # The resident has other children too, which have done less than the command.
    child = max(children.read_text().split(), key=processor_ticks)
    os.kill(int(child), signal.SIGKILL)
    assert beats.wait(SECONDS) == -signal.SIGKILL
    assert own.growing("beats") == []
    own.project.write({"models/beats.sql": "{{ config(materialized='table') }} SELECT 1 AS x"})
    own.succeed("run", "-s", "beats")
    assert own.processes() == processes


@nightly
def test_relative_paths_are_those_of_the_commands_directory(own: ResidentProject) -> None:
    for name in ("first", "second"):
        (own.folder / name / "data").mkdir(parents=True)
        (own.folder / name / "data" / "x.csv").write_text(f"{name}\n")
    own.project.write({"models/here.sql": "{{ config(materialized='table') }} SELECT * FROM csv.`data/x.csv`"})
    for name in ("first", "second"):
        done = own.shell(f"cd {name}; $DBT run -s here --project-dir .. --profiles-dir ..")
        assert done.returncode == 0, done.stdout
        shown = own.shell(
            f"cd {name}; $DBT show --inline 'SELECT * FROM {{{{ ref(\"here\") }}}}' --project-dir .. --profiles-dir .."
        )
        assert f"| {name} " in shown.stdout, shown.stdout
    assert "the working directory changed" in done.stdout


@nightly
def test_commands_with_one_metastore_store_no_rows_for_each_other(own: ResidentProject) -> None:
    derby = f"jdbc:derby:;databaseName={own.folder / 'metastore'};create=true"
    own.project.profile["spark"]["spark.hadoop.javax.jdo.option.ConnectionURL"] = derby
    own.project.save_profile()
    own.project.write({"models/tests.yml": "models: [{name: orders, columns: [{name: id, data_tests: [unique, not_null]}]}]"})
    own.succeed("run", "-s", "orders")
    output = own.succeed("test", "-s", "orders", "--log-level", "debug")
    assert "global_temp" not in output and "PASS=2" in output


@nightly
def test_catalog_in_memory_ends_with_the_command(own: ResidentProject) -> None:
    own.project.profile["spark"]["spark.sql.catalogImplementation"] = "in-memory"
    own.project.save_profile()
    own.project.write({"models/once.sql": "{{ config(materialized='view') }} SELECT 1 AS x"})
    own.succeed("run", "-s", "once")
    code, output = own.run("show", "--inline", "SELECT * FROM {{ ref('once') }}")
    assert code != 0 and "TABLE_OR_VIEW_NOT_FOUND" in output, output


@nightly
def test_idle_resident_ends(own: ResidentProject) -> None:
    own.project.profile["resident_idle_minutes"] = 0.1
    own.project.save_profile()
    own.succeed("run", "-s", "orders")
    processes = own.processes()
    wait_until(lambda: not any(map(is_running, processes)), seconds=60)
    assert own.status() == {}


@nightly
def test_embedded_broker_runs_between_commands(tmp_path: Path) -> None:
    dbt = ResidentProject(Project(tmp_path / "project", "embedded").write(FILES))
    try:
        dbt.succeed("run", "-s", "orders")
        state = dbt.folder / ".upsert_kafka" / "broker" / "broker.json"
        before = json.loads(state.read_text())
        time.sleep(5)
        assert is_running(before["broker"])
        dbt.succeed("run", "-s", "orders")
        assert json.loads(state.read_text()) == before
    finally:
        dbt.stop()
    wait_until(lambda: not is_running(before["broker"]))


@nightly
def test_socket_is_private_and_a_lost_one_is_made_again(own: ResidentProject) -> None:
    own.succeed("ls")
    folder = own.folder / ".upsert_kafka" / protocol.FOLDER
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / protocol.SOCKET).stat().st_mode & 0o777 == 0o600
    shutil.rmtree(folder)
    assert STARTING in own.succeed("ls")


@nightly
def test_two_streams_at_once_get_their_own_batches(own: ResidentProject, topic_name: str) -> None:
    """Spark calls a function of Python for each batch: each command must get the calls of its own stream."""
    servers = own.project.profile["bootstrap_servers"]
    for name in "ab":
        write(servers, f"{topic_name}.{name}", [Message({"id": id_, "name": name}) for id_ in range(5)])
        source = (
            f"{{{{ config(materialized='kafka_source', topic='{topic_name}.{name}') }}}} select * from {{{{ kafka_topic() }}}}"
        )
        options = "materialized='upsert_kafka', unique_key='id', trigger='available-now'"
        stream = (
            f"{{{{ config({options}) }}}} select id, max(name) as name from {{{{ stream(ref('source_{name}')) }}}} group by id"
        )
        columns = "[{name: id, data_type: bigint}, {name: name, data_type: string}]"
        schema = f"models: [{{name: source_{name}, columns: {columns}}}]"
        own.project.write(
            {
                f"models/source_{name}.sql": source,
                f"models/stream_{name}.sql": stream,
                f"models/{name}.yml": schema,
            }
        )
    commands = [own.start("run", "-s", f"source_{name}", f"stream_{name}") for name in "ab"]
    for command in commands:
        output, _ = command.communicate(timeout=SECONDS)
        assert command.returncode == 0, output
    assert [own.topic(f"stream_{name}") for name in "ab"] == [["a"] * 5, ["b"] * 5]
