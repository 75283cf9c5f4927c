{#-- Reads a kafka_source, a kafka model or a Delta table as a stream, in models with a trigger: from {{ stream(ref('pageviews')) }}.
     In batch runs, compile, show, unit tests and with --empty it is the relation itself. --#}
{% macro stream(relation) -%}
  {{ return(adapter.stream(model, relation, flags.WHICH, graph, generate_topic_name) if execute else relation) }}
{%- endmacro %}

{#-- The number of distinct values of a column, in models that are streams or may become one: Spark refuses COUNT(DISTINCT …) in a
     stream. A stream keeps all values of each group in its state. --#}
{% macro count_distinct(column) -%}
  {%- if execute and adapter.is_stream(model, flags.WHICH) -%}
    cast(size(collect_set({{ column }})) as bigint)
  {%- else -%}
    count(distinct {{ column }})
  {%- endif -%}
{%- endmacro %}
