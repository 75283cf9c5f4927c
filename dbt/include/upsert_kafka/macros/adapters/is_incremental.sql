{#-- True where dbt says so, and of a relation that exists for a kafka model that appends and for an upsert_kafka model that
     publishes a slice (missing_keys='keep'). --#}
{% macro is_incremental() %}
  {%- if not execute -%}
    {{ return(false) }}
  {%- endif -%}
  {%- if model.config.materialized not in ('upsert_kafka', 'kafka') -%}
    {{ return(dbt.is_incremental()) }}
  {%- endif -%}
  {%- set relation = load_cached_relation(this) -%}
  {{ return(relation is not none and relation.type == 'view' and adapter.is_slice(model, relation) and not should_full_refresh()) }}
{% endmacro %}
