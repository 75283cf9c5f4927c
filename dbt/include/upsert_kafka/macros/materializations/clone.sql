{#-- A Delta table is cloned without a copy of its files. Everything else, such as the view of a topic, becomes a view of the
     original: no rows are read or written. --#}
{%- materialization clone, adapter='upsert_kafka' -%}
  {%- if not defer_relation -%}
    {{ log("No relation found in state manifest for " ~ model.unique_id, info=True) }}
    {{ return({'relations': []}) }}
  {%- endif -%}
  {%- set existing_relation = load_cached_relation(this) -%}
  {%- if existing_relation and not flags.FULL_REFRESH -%}
    {{ log("Relation " ~ existing_relation ~ " already exists", info=True) }}
    {{ return({'relations': []}) }}
  {%- endif -%}
  {%- set origin = load_cached_relation(defer_relation) -%}
  {%- if not origin -%}
    {% do exceptions.raise_compiler_error("Relation " ~ defer_relation ~ " cannot be cloned: it does not exist. Build it first.") %}
  {%- elif defer_relation.render() == this.render() -%}
    {{ log("Target relation and defer relation are the same, skipping clone for relation: " ~ this.render()) }}
    {{ return({'relations': []}) }}
  {%- endif -%}

  {%- set clones = origin.type == 'table' and origin.is_delta and can_clone_table() -%}
  {%- set target_relation = this.incorporate(type='table' if clones else 'view') -%}
  {#-- Delta cannot clone into a table that has rows. --#}
  {%- if existing_relation and (clones or existing_relation.type != 'view') -%}
    {{ drop_relation_if_exists(existing_relation) }}
  {%- endif -%}
  {% call statement('main') %}
    {%- if clones -%}
      {{ create_or_replace_clone(target_relation, defer_relation) }}
    {%- else -%}
      create or replace view {{ target_relation }} as select * from {{ defer_relation }}
    {%- endif -%}
  {% endcall %}
  {{ return({'relations': [target_relation]}) }}
{%- endmaterialization -%}
