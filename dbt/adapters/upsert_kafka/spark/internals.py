"""The only module that uses private or undocumented parts of pyspark and Py4J.

Each function says why it exists and which public way is missing. tests/unit/spark/test_internals.py fails with a sentence if a
release of pyspark moved one of these parts. kafka_client/keystores.py starts a JVM of its own with Py4J's public gateway.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from subprocess import Popen
from typing import Any, TypeVar

from dbt.adapters.events.logging import AdapterLogger
from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession, types

from dbt.adapters.upsert_kafka.kafka_properties import JavaClient

logger = AdapterLogger("upsert_kafka")

Session = TypeVar("Session", bound=SparkSession)

QUERY_CONTEXT_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def launch_jvm(settings: Mapping[str, Any], script: Path | None, output: int) -> None:
    """Start the driver's JVM with these settings on its command line, unless this process has a JVM.

    Args:
        script: is run with the arguments of spark-submit in its place, see `launcher`.
        output: the file descriptor that the JVM gets as stdout and stderr. It goes on for a moment after this process has
            ended; whoever reads this process's output must not wait for it.

    Why: every user of the machine can read a command line, so the settings with secrets must not be on it.
    Missing: `SparkSession.builder` starts the JVM itself and puts all settings on its command line.
    """
    if SparkContext._gateway is not None:
        return
    popen: dict[str, Any] = {"stdout": output, "stderr": output, **({"executable": str(script)} if script else {})}
    gateway = launch_gateway(SparkConf(loadDefaults=False).setAll(list(settings.items())), popen)
    SparkContext._ensure_initialized(gateway=gateway)


def delete_artifacts_folder(session: SparkSession) -> None:
    """Delete the empty folder `artifacts` that Spark 4.0 creates in the working directory. Spark creates it again if it needs it.

    Why: it is empty, and it stays there if the process is killed.
    Missing: Spark 4.0 has no setting for it. Later versions create it in the folder of temporary files.
    """
    try:
        java_session: Any = session._jsparkSession
        folder = Path(str(java_session.artifactManager().artifactRootPath()))
        # A second session of the same JVM has the same folder.
        if folder.parent.name == "artifacts" and folder.is_dir():
            folder.rmdir()
            # Not empty if it belongs to the user, or if another process has just started.
            if not any(folder.parent.iterdir()):
                folder.parent.rmdir()
    except (Py4JError, OSError) as error:
        # An empty folder is no reason to fail.
        logger.debug(f"The folder 'artifacts' was not deleted: {error}")


def jvm_process() -> Popen[bytes]:
    """Return the process of the driver's JVM.

    Why: a JVM writes its class archive when it exits, and the caller must wait for the file.
    Missing: `SparkSession.stop` ends the session, not the JVM. pyspark has no public handle of the process.
    """
    gateway = SparkContext._gateway
    assert gateway is not None, "Spark runs in no JVM of this process"
    return gateway.proc


def java_kafka_client(session: SparkSession) -> JavaClient | None:
    """Version and properties of the Kafka client in the jars of a Spark that this process started; None without such a client.

    Why: a property that Kafka added later has no effect on an older client, and Spark does not report that.
    Missing: pyspark has no public way to call a class of a jar.
    """
    jvm: Any = session._jvm
    client = jvm.org.apache.kafka.clients
    configs = [client.producer.ProducerConfig, client.consumer.ConsumerConfig, client.admin.AdminClientConfig]
    if not all(isinstance(config, JavaClass) for config in configs):
        return None
    names = frozenset(str(name) for config in configs for name in config.configNames())
    return JavaClient(str(jvm.org.apache.kafka.common.utils.AppInfoParser.getVersion()), names)


def new_session(shared: SparkSession, cls: type[Session]) -> Session:
    """Return a session as `SparkSession.newSession` does, of a class of ours.

    Why: the class adds to `sql` and `table`, see `restoring_session`.
    Missing: the constructor takes the JVM's session, which is private, and Spark has no hook for relations that do not exist.
    """
    return cls(shared.sparkContext, shared._jsparkSession.newSession())


def unpersist_checkpoint(frame: DataFrame) -> None:
    """Free the blocks of a frame that `DataFrame.localCheckpoint` returned, without waiting for it.

    Why: otherwise the blocks stay until Java's garbage collection, and Spark writes them to disk if the next model needs memory.
    Missing: `DataFrame.unpersist` frees cached frames only. Spark has no public way to free a local checkpoint.
    """
    plan: Any = frame._jdf.queryExecution().logical()
    plan.rdd().unpersist(False)


def tasks_of_checkpoint(frame: DataFrame) -> int:
    """How many tasks compute a frame that `DataFrame.localCheckpoint` returned.

    Missing: `DataFrame.rdd` would convert the rows to Python objects and plan the query.
    """
    plan: Any = frame._jdf.queryExecution().logical()
    return int(plan.rdd().getNumPartitions())


def progress_reports(query: Any, after: str) -> list[dict[str, Any]]:
    """The reports of a streaming query since the one whose trigger began at `after`, the oldest first.

    Why: this is called several times per second. `lastProgress` and `recentProgress` ask the JVM for every field of up to 100
    reports, thousands of calls for each batch.
    Missing: PySpark does not return a report as JSON.
    """
    reports, found = query._jsq.recentProgress(), []
    for number in range(len(reports) - 1, -1, -1):
        if reports[number].timestamp() == after:
            break
        found.append(json.loads(reports[number].json()))
    return found[::-1]


@dataclass(frozen=True)
class StageRows:
    """Rows that the tasks of a stage have processed so far."""

    input_rows: int
    """From files, Kafka or checkpoints."""
    shuffled_rows: int
    """From earlier stages."""

    @property
    def rows(self) -> int:
        return max(self.input_rows, self.shuffled_rows)


def jobs_with_tag(spark: SparkSession, tag: str) -> list[int]:
    """The ids of the jobs with a tag, also of those that ended.

    Why: progress of a model is that of its jobs.
    Missing: pyspark's StatusTracker finds jobs by group only, and models set tags.
    """
    tracker = _scala_context(spark).statusTracker()
    return _integers(spark, tracker.getJobIdsForTag(tag))


def rows_of_stages(spark: SparkSession, job: int) -> list[StageRows]:
    """The rows of each stage of a job, in the order of the stages.

    Why: progress is shown in rows.
    Missing: pyspark's StatusTracker has numbers of tasks only.
    """
    context = _scala_context(spark)
    store, information = context.statusStore(), context.statusTracker().getJobInfo(job)
    stages = sorted(_integers(spark, information.get().stageIds())) if information.isDefined() else []
    found = [store.lastStageAttempt(stage) for stage in stages]
    return [StageRows(int(stage.inputRecords()), int(stage.shuffleReadRecords())) for stage in found]


def _scala_context(spark: SparkSession) -> Any:
    return spark.sparkContext._jsc.sc()


def _integers(spark: SparkSession, array: Any) -> list[int]:
    """The numbers of a Java array, with one call instead of one for each element."""
    jvm: Any = spark.sparkContext._jvm
    return [int(number) for number in jvm.java.util.Arrays.toString(array).strip("[]").split(",") if number]


def disable_query_context_loggers() -> None:
    """Stop pyspark from printing the errors that it raises.

    Why: dbt reports a model's error. pyspark would print it a second time on stderr, with a Java stack trace.
    Missing: pyspark has no setting for this, and the names of the loggers are not documented.
    """
    for name in QUERY_CONTEXT_LOGGERS:
        PySparkLogger.getLogger(name).disabled = True


def convert_numpy_without_pandas() -> None:
    """Let pyspark recognise values of numpy without importing pandas.

    Why: the first call of a Java method with a list imports pandas and pyarrow, 0.4 s of CPU time that most commands don't need.
    Missing: pyspark's converters of numpy's values import its test utilities, which import pandas, to know whether numpy is
    installed. No value can be one of numpy's before numpy is imported.
    """
    for name, can_convert in {"NumpyScalarConverter": _is_numpy_scalar, "NumpyArrayConverter": _is_numpy_array}.items():
        if converter := getattr(types, name, None):
            converter.can_convert = can_convert


def _is_numpy_scalar(_: object, value: object) -> bool:
    if "numpy" not in sys.modules:
        return False
    import numpy

    return isinstance(value, numpy.generic)


def _is_numpy_array(_: object, value: object) -> bool:
    if "numpy" not in sys.modules:
        return False
    import numpy

    return isinstance(value, numpy.ndarray) and value.ndim == 1


def set_connect_retries(spark: Any, max_retries: int | None = None) -> None:
    """Set how often a Spark Connect client repeats a request that failed; None for pyspark's default.

    Args:
        spark: a session of Spark Connect.

    Why: by default the client retries for ten minutes before it reports that no server answers.
    Missing: `SparkSession.builder.remote` has no parameter for it, and the module of the policies is not documented.

    Raises:
        ImportError: the packages of Spark Connect are not installed.
    """
    from pyspark.sql.connect.client.retries import DefaultPolicy

    policy = DefaultPolicy() if max_retries is None else DefaultPolicy(max_retries=max_retries)
    spark.client.set_retry_policies([policy])


def check_streaming_plan(frame: DataFrame, output_mode: str) -> None:
    """Let Spark check whether the plan can be a stream.

    Args:
        output_mode: `Update` or `Append`.

    Why: a stream must be refused before a topic is created or a checkpoint is written.
    Missing: Spark's own check is a part of `DataStreamWriter.start`, which also starts the query.

    Raises:
        AnalysisException: the reason.
    """
    session: Any = frame.sparkSession
    jvm = session._jvm
    mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, output_mode)()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), mode)


# Spark 4.0's name, then that of 4.1 and later.
LOCAL_CHECKPOINT_MANAGERS = (
    "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager",
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
)


def local_checkpoint_manager(spark: SparkSession) -> str | None:
    """The class that writes checkpoints with Hadoop's FileSystem; None if this Spark has none of these names.

    Why: it is ten times faster than Spark's default on a local disk, whose renames are atomic.
    Missing: the setting `spark.sql.streaming.checkpointFileManagerClass` takes a class, and every class is internal.
    """
    jvm: Any = spark.sparkContext._jvm
    found = (name for name in LOCAL_CHECKPOINT_MANAGERS if isinstance(reduce(getattr, name.split("."), jvm), JavaClass))
    return next(found, None)


class PlanNode:
    """A node of an optimized logical plan. Expressions are text, such as `region#16` and `window#44.start`."""

    def __init__(self, node: Any) -> None:
        self._node = node
        self.name: str = node.nodeName()
        self.is_streaming: bool = node.isStreaming()

    @property
    def children(self) -> list[PlanNode]:
        return [PlanNode(child) for child in _items(self._node.children())]

    @property
    def join_type(self) -> str:
        """Of a Join: `Inner`, `LeftOuter`, …"""
        return self._node.joinType().toString()

    @property
    def grouping(self) -> list[str]:
        """The grouping expressions of an Aggregate."""
        return [expression.toString() for expression in _items(self._node.groupingExpressions())]

    @property
    def output(self) -> dict[str, str]:
        """The columns by name."""
        return {attribute.name(): attribute.toString() for attribute in _items(self._node.output())}

    @property
    def definitions(self) -> dict[str, str]:
        """The columns of a Project or Aggregate, each with its expression over the child's columns."""
        expressions = self._node.projectList() if self.name == "Project" else self._node.aggregateExpressions()
        return {
            e.toAttribute().toString(): e.child().toString() if e.nodeName() == "Alias" else e.toString()
            for e in _items(expressions)
        }


def optimized_plan(frame: DataFrame) -> PlanNode:
    """Return the optimized logical plan of a streaming DataFrame, in which filters are where they take effect.

    Why: a filter that removes groups of an aggregate is wrong in a stream, and one on the grouping columns is not.
    Missing: `DataFrame.explain` prints text, and refuses streams in some modes.
    """
    optimizer: Any = frame.sparkSession._jsparkSession.sessionState().optimizer()
    return PlanNode(optimizer.execute(frame._jdf.queryExecution().analyzed()))


def with_deduplication(frame: DataFrame) -> DataFrame:
    """Return a streaming DataFrame in which SELECT DISTINCT is `dropDuplicates`: it returns each row once.

    Why: Spark computes SELECT DISTINCT of a stream as an aggregate, which returns a row again in each batch that has it.
    Missing: SQL has no word for `dropDuplicates`.
    """
    jvm: Any = frame.sparkSession._jvm
    analysed = frame._jdf.queryExecution().analyzed()
    changed = _with_deduplicate(jvm, analysed)
    if changed is analysed:
        return frame
    session: Any = frame.sparkSession
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, changed), session)


def _with_deduplicate(jvm: Any, node: Any) -> Any:
    if not node.isStreaming():
        return node
    children = _items(node.children())
    changed = [_with_deduplicate(jvm, child) for child in children]
    if node.nodeName() == "Distinct":
        [child] = changed
        return jvm.org.apache.spark.sql.catalyst.plans.logical.Deduplicate(child.output(), child)
    if all(new is old for new, old in zip(changed, children, strict=True)):
        return node
    return node.withNewChildren(jvm.PythonUtils.toSeq(changed))


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(i) for i in range(sequence.size())]


class HadoopFiles:
    """Files on any file system that Spark knows.

    Why: checkpoints of streams are on the driver's disk or on shared storage, and Spark alone has the settings of both.
    Missing: pyspark reads rows from files, and has no functions for files themselves.
    """

    def __init__(self, spark: SparkSession, folder: str) -> None:
        session: Any = spark
        self._jvm = session._jvm
        self._folder = self._jvm.org.apache.hadoop.fs.Path(folder)
        self._files = self._folder.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())

    @property
    def is_local(self) -> bool:
        return self._files.getScheme() == "file"

    def has(self, name: str) -> bool:
        return self._files.exists(self._path(name))

    def names(self, subfolder: str) -> list[str]:
        """The names in a subfolder; empty if it does not exist."""
        path = self._path(subfolder)
        return [found.getPath().getName() for found in self._files.listStatus(path)] if self._files.exists(path) else []

    def read(self, name: str) -> str:
        stream = self._files.open(self._path(name))
        try:
            return self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()

    def delete(self) -> None:
        """Delete the folder with all files in it."""
        self._files.delete(self._folder, True)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._folder, name)
