{#-- Like dbt's macro. Also true for a kafka model that appends and an upsert_kafka model with missing_keys='keep' if the model was
     published before. This macro replaces dbt's macro of the same name, so it cannot call it. --#}
{% macro is_incremental() %}
  {%- if not execute or should_full_refresh() -%}
    {{ return(false) }}
  {%- endif -%}
  {%- set relation = load_cached_relation(this) -%}
  {%- if model.config.materialized in ('upsert_kafka', 'kafka') -%}
    {#-- The state topic decides, not the catalog: a container has a new catalog for each command. --#}
    {%- set is_replaced = relation is not none and relation.type != 'view' -%}
    {{ return(not is_replaced and adapter.is_slice(model, upsert_kafka_topic_of(model))) }}
  {%- else -%}
    {{ return(relation is not none and relation.type == 'table' and model.config.materialized == 'incremental') }}
  {%- endif -%}
{% endmacro %}
