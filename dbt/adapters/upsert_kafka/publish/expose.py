"""Step expose: the topic as a relation for `ref()`. Leaves the SQL to `catalog.views`."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.catalog import reading, views
from dbt.adapters.upsert_kafka.formats.records import Records
from dbt.adapters.upsert_kafka.publish.request import Request


def expose(spark: SparkSession, layout: Records, request: Request, before: Mapping[str, str]) -> None:
    """Create the view over the topic, unless it exists with the same definition.

    Args:
        before: properties of the table of raw records, see `views.prepare`.
    """
    reader = views.whole_topic(request.topic, request.kafka)
    view = views.TopicView(request.relation, request.existing, reader, view_query(layout, request), request.comments)
    views.create(spark, view, before)


def view_query(layout: Records, request: Request) -> str:
    """The SELECT of the view, see `reading.view_query`."""
    options = request.options
    return reading.view_query(layout, request.relation, options.materialization, options.ignore_parse_errors)
