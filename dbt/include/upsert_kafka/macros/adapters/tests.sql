{#-- The tests of a command share one read of a topic, see catalog/shared_reads.py. --#}
{% macro upsert_kafka__get_test_sql(main_sql, fail_calc, warn_if, error_if, limit) -%}
  {%- set shared = adapter.share_reads(model, main_sql, graph, selected_resources, generate_topic_name) -%}
  {{ default__get_test_sql(shared, fail_calc, warn_if, error_if, limit) }}
{%- endmacro %}
