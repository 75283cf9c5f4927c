{#-- In dbt_project.yml, on-run-end: "{{ commit_group_offsets(results) }}" commits the consumer groups of this run's sources. --#}
{% macro commit_group_offsets(results) -%}
  {%- if execute -%}{% do adapter.commit_group_offsets(results, graph, var('upsert_kafka_dry_run', false)) %}{%- endif -%}
{%- endmacro %}
