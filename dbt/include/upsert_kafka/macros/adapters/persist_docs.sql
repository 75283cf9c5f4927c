{#-- Like dbt-spark's macro, but for tables of every file format, and for descriptions that changed after the table was created.
     The comments of a view are set when it is created. --#}
{% macro upsert_kafka__persist_docs(relation, model, for_relation, for_columns) -%}
  {%- if relation.type == 'table' -%}
    {%- if for_relation and config.persist_relation_docs() and model.description -%}
      {%- do run_query("comment on table " ~ relation ~ " is " ~ adapter.quote_literal(model.description)) -%}
    {%- endif -%}
    {{ spark__persist_docs(relation, model, for_relation, for_columns) }}
  {%- elif for_columns and config.persist_column_docs() and model.columns -%}
    {%- do validate_doc_columns(relation, model.columns, adapter.get_columns_in_relation(relation) | map(attribute='name') | list) -%}
  {%- endif -%}
{%- endmacro %}

{% macro upsert_kafka__alter_column_comment(relation, column_dict) %}
  {%- for name, column in column_dict.items() if column['description'] -%}
    {%- do run_query("alter table " ~ relation ~ " alter column " ~ adapter.quote(name) ~ " comment " ~ adapter.quote_literal(column['description'])) -%}
  {%- endfor -%}
{% endmacro %}
