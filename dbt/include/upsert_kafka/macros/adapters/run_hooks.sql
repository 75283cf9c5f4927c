{#-- Spark has no transactions: every hook runs, in the order in which they are written. dbt's own macro would send a COMMIT, and
     dbt-spark's materializations would leave out hooks with transaction=false. --#}
{% macro run_hooks(hooks, inside_transaction=True) %}
  {%- for hook in hooks if inside_transaction -%}
    {%- set rendered = render(hook.get('sql')) | trim -%}
    {%- if rendered -%}
      {% call statement(auto_begin=false) %}{{ rendered }}{% endcall %}
    {%- endif -%}
  {%- endfor -%}
{% endmacro %}
