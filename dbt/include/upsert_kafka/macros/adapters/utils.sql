{#-- dbt-spark ignores the order. --#}
{% macro upsert_kafka__listagg(measure, delimiter_text, order_by_clause, limit_num) -%}
  {%- set ordered = ' within group (' ~ order_by_clause ~ ')' if order_by_clause else '' -%}
  {%- if limit_num -%}
    {#-- No text has this separator. --#}
    array_join(slice(split(listagg({{ measure }}, '\u0001'){{ ordered }}, '\u0001'), 1, {{ limit_num }}), {{ delimiter_text }})
  {%- else -%}
    listagg({{ measure }}, {{ delimiter_text }}){{ ordered }}
  {%- endif -%}
{%- endmacro %}

{#-- dbt-spark splits by a regular expression, and an index beyond the last part is an error. --#}
{% macro upsert_kafka__split_part(string_text, delimiter_text, part_number) -%}
  split_part({{ string_text }}, {{ delimiter_text }}, {{ part_number }})
{%- endmacro %}
