{#-- Like dbt-spark's macro, with the model's sql_header. A Python model runs in dbt's process, which defines write_table. --#}
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

{#-- Inserts the rows as data, not as SQL text. --#}
{% macro upsert_kafka__load_csv_rows(model, agate_table) %}
  {%- do adapter.load_seed(this, agate_table, model['config'].get('column_types', {})) -%}
  {{ return('-- ' ~ (agate_table.rows | length) ~ ' rows inserted') }}
{% endmacro %}

{#-- dbt-spark's macro cannot drop columns. Delta can, if its columns are mapped by name. --#}
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

{#-- Only Delta has constraints. not_null becomes a check constraint, because a column cannot be altered to NOT NULL. --#}
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

{#-- render() names the table itself: with --empty a ref() is a subquery. --#}
{% macro upsert_kafka__alter_column_type(relation, column_name, new_column_type) %}
  {%- do run_query("alter table " ~ relation.render() ~ " alter column " ~ column_name ~ " type " ~ new_column_type) -%}
{% endmacro %}

{#-- Delta does not support TRUNCATE. --#}
{% macro upsert_kafka__truncate_relation(relation) %}
  {%- if execute -%}
    {%- set is_delta = (adapter.get_relation(none, relation.schema, relation.identifier) or relation).is_delta -%}
    {%- do run_query(("delete from " if is_delta else "truncate table ") ~ relation.render()) -%}
  {%- endif -%}
{% endmacro %}

{#-- The staging view of a snapshot with several keys has columns dbt_unique_key_1, … that the snapshot does not have. --#}
{% macro upsert_kafka__create_columns(relation, columns) %}
  {%- set own = [] -%}
  {%- for column in columns if not column.name.lower().startswith('dbt_unique_key') -%}{%- do own.append(column) -%}{%- endfor -%}
  {{ spark__create_columns(relation, own) }}
{% endmacro %}

{#-- dbt-spark's macro returns the rows of DESCRIBE, but a snapshot with hard_deletes='new_record' needs columns. --#}
{% macro upsert_kafka__get_columns_in_relation(relation) %}
  {{ return(adapter.get_columns_in_relation(relation)) }}
{% endmacro %}
