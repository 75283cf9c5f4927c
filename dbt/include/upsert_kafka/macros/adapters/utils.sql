{#-- dbt-spark's macro ignores order_by_clause. --#}
{% macro upsert_kafka__listagg(measure, delimiter_text, order_by_clause, limit_num) -%}
  {%- set ordered = ' within group (' ~ order_by_clause ~ ')' if order_by_clause else '' -%}
  {%- if limit_num -%}
    {#-- A control character that texts do not contain separates the parts until they are counted. --#}
    array_join(slice(split(listagg({{ measure }}, '\u0001'){{ ordered }}, '\u0001'), 1, {{ limit_num }}), {{ delimiter_text }})
  {%- else -%}
    listagg({{ measure }}, {{ delimiter_text }}){{ ordered }}
  {%- endif -%}
{%- endmacro %}

{#-- dbt-spark's macro takes the delimiter as a regular expression and fails for an index beyond the last part. --#}
{% macro upsert_kafka__split_part(string_text, delimiter_text, part_number) -%}
  split_part({{ string_text }}, {{ delimiter_text }}, {{ part_number }})
{%- endmacro %}
