{#-- True where dbt says so, and of a relation that exists for a kafka model that appends and for an upsert_kafka model that
     publishes a slice (missing_keys='keep'). dbt's own macro can't be called from here: adapters' macros take its name. --#}
{% macro is_incremental() %}
  {%- if not execute -%}
    {{ return(false) }}
  {%- endif -%}
  {%- set relation = load_cached_relation(this) -%}
  {%- if relation is none or should_full_refresh() -%}
    {{ return(false) }}
  {%- elif model.config.materialized in ('upsert_kafka', 'kafka') -%}
    {{ return(relation.type == 'view' and adapter.is_slice(model, relation)) }}
  {%- else -%}
    {{ return(relation.type == 'table' and model.config.materialized == 'incremental') }}
  {%- endif -%}
{% endmacro %}
