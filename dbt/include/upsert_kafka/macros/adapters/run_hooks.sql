{#-- Spark has no transactions: all hooks run in the order in which they are written. dbt's own macro sends a COMMIT, and dbt-spark's
     materializations omit hooks with transaction=false. --#}
{% macro run_hooks(hooks, inside_transaction=True) %}
  {%- for hook in hooks if inside_transaction -%}
    {%- set rendered = render(hook.get('sql')) | trim -%}
    {%- if rendered -%}
      {% call statement(auto_begin=false) %}{{ rendered }}{% endcall %}
    {%- endif -%}
  {%- endfor -%}
{% endmacro %}
