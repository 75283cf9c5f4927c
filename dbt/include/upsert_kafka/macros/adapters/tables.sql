{#-- As in dbt-spark, with the model's sql_header; a Python model's rows are written by this process. --#}
{%- macro upsert_kafka__create_table_as(temporary, relation, compiled_code, language='sql') -%}
  {%- if language == 'python' %}
{{ compiled_code }}
write_table("{{ relation }}", {{ "'" ~ config.get('file_format') ~ "'" if config.get('file_format') else 'None' }})
  {%- else -%}
    {%- set header = config.get('sql_header') -%}
    {{ header ~ ';' if header and not header.rstrip().endswith(';') else header or '' }}
    {{ spark__create_table_as(temporary, relation, compiled_code, language) }}
  {%- endif -%}
{%- endmacro -%}

{#-- Rows as data, never as SQL text. --#}
{% macro upsert_kafka__load_csv_rows(model, agate_table) %}
  {%- set overrides = model['config'].get('column_types', {}) -%}
  {%- set types = [] -%}
  {%- for name in agate_table.column_names -%}
    {%- do types.append(overrides.get(name, adapter.convert_type(agate_table, loop.index0))) -%}
  {%- endfor -%}
  {%- do adapter.load_seed(this, agate_table, types) -%}
  {{ return('-- ' ~ (agate_table.rows | length) ~ ' rows inserted') }}
{% endmacro %}

{#-- dbt-spark drops no columns; Delta can, once its columns are mapped by name. --#}
{% macro upsert_kafka__alter_relation_add_remove_columns(relation, add_columns, remove_columns) %}
  {%- if not execute -%}{{ return('') }}{%- endif -%}
  {%- if remove_columns and (adapter.get_relation(none, relation.schema, relation.identifier) or relation).is_delta -%}
    {%- do run_query("alter table " ~ relation ~ " set tblproperties ('delta.columnMapping.mode' = 'name')") -%}
    {%- do run_query("alter table " ~ relation ~ " drop columns (" ~ remove_columns | map(attribute='quoted') | join(', ') ~ ")") -%}
    {%- set remove_columns = none -%}
  {%- endif -%}
  {%- if add_columns or remove_columns -%}
    {{ spark__alter_relation_add_remove_columns(relation, add_columns, remove_columns) }}
  {%- endif -%}
{% endmacro %}

{#-- Only Delta keeps constraints, and not_null only as a check: a column can't become NOT NULL. --#}
{% macro upsert_kafka__persist_constraints(relation, model) %}
  {%- if config.get('contract').enforced and config.get('file_format') == 'delta' -%}
    {{ spark__persist_constraints(relation, model) }}
  {%- endif -%}
{% endmacro %}

{% macro upsert_kafka__alter_column_set_constraints(relation, column_dict) %}
  {%- for name, column in column_dict.items() -%}
    {%- for constraint in column['constraints'] if constraint.type in ('not_null', 'check') -%}
      {%- set rule = adapter.quote(name) ~ " is not null" if constraint.type == 'not_null' else constraint.expression -%}
      {%- set label = constraint.name or local_md5(name ~ ';' ~ rule) -%}
      {%- do run_query("alter table " ~ relation ~ " add constraint " ~ adapter.quote(label) ~ " check (" ~ rule ~ ")") -%}
    {%- endfor -%}
  {%- endfor -%}
{% endmacro %}

{% macro upsert_kafka__get_merge_sql(target, source, unique_key, dest_columns, incremental_predicates) %}
  {%- set columns = adapter.get_columns_in_relation(source) -%}
  {%- set updated = get_merge_update_columns(config.get('merge_update_columns'), config.get('merge_exclude_columns'), columns) -%}
  {{ adapter.merge_sql(model, target, source, updated, incremental_predicates) }}
{% endmacro %}

{#-- A ref() renders as a subquery with --empty; these are about the table itself. --#}
{% macro upsert_kafka__alter_column_type(relation, column_name, new_column_type) %}
  {%- do run_query("alter table " ~ relation.render() ~ " alter column " ~ column_name ~ " type " ~ new_column_type) -%}
{% endmacro %}

{#-- Delta has no TRUNCATE. --#}
{% macro upsert_kafka__truncate_relation(relation) %}
  {%- if execute -%}
    {%- set is_delta = (adapter.get_relation(none, relation.schema, relation.identifier) or relation).is_delta -%}
    {%- do run_query(("delete from " if is_delta else "truncate table ") ~ relation.render()) -%}
  {%- endif -%}
{% endmacro %}

{#-- A snapshot with several keys numbers them in its staging view; they are no columns of the snapshot. --#}
{% macro upsert_kafka__create_columns(relation, columns) %}
  {%- set own = [] -%}
  {%- for column in columns if not column.name.lower().startswith('dbt_unique_key') -%}{%- do own.append(column) -%}{%- endfor -%}
  {{ spark__create_columns(relation, own) }}
{% endmacro %}

{#-- dbt-spark's answers with rows of DESCRIBE, in which a snapshot with hard_deletes='new_record' finds no column. --#}
{% macro upsert_kafka__get_columns_in_relation(relation) %}
  {{ return(adapter.get_columns_in_relation(relation)) }}
{% endmacro %}
