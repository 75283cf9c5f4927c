{#-- on-run-end: "{{ commit_group_offsets(results) }}" --#}
{% macro commit_group_offsets(results) -%}
  {%- if execute -%}{% do adapter.commit_group_offsets(results, graph) %}{%- endif -%}
{%- endmacro %}
