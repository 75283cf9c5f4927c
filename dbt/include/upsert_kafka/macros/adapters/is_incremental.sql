{#-- True where dbt says so, and for an upsert_kafka model that publishes a slice (missing_keys='keep') of a relation that exists. --#}
{% macro is_incremental() %}
  {%- if not execute -%}
    {{ return(false) }}
  {%- endif -%}
  {%- if model.config.materialized != 'upsert_kafka' -%}
    {{ return(dbt.is_incremental()) }}
  {%- endif -%}
  {%- set relation = load_cached_relation(this) -%}
  {{ return(relation is not none and relation.type == 'view' and adapter.is_slice(model, relation) and not should_full_refresh()) }}
{% endmacro %}
