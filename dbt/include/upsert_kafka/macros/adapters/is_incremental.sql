{#-- Like dbt's macro. Also true for a kafka model that appends and an upsert_kafka model with missing_keys='keep' if the model was
     published before. This macro replaces dbt's macro of the same name, so it cannot call it. --#}
{% macro is_incremental() %}
  {%- if not execute -%}
    {{ return(false) }}
  {%- endif -%}
  {%- set relation = load_cached_relation(this) -%}
  {%- if relation is none or should_full_refresh() -%}
    {{ return(false) }}
  {%- elif model.config.materialized in ('upsert_kafka', 'kafka') -%}
    {{ return(relation.type == 'view' and adapter.is_slice(model, upsert_kafka_topic_of(model))) }}
  {%- else -%}
    {{ return(relation.type == 'table' and model.config.materialized == 'incremental') }}
  {%- endif -%}
{% endmacro %}
