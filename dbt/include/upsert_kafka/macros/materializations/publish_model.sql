{#-- The steps of the materializations upsert_kafka and kafka; the adapter distinguishes them by the options. --#}
{% macro publish_model() %}
  {%- set topic = upsert_kafka_topic_of(model) -%}
  {% do adapter.check_topic_is_unique(model, graph, generate_topic_name) %}
  {%- set target_relation = this.incorporate(type='view') -%}

  {{ run_hooks(pre_hooks) }}
  {%- if config.get('sql_header') -%}
    {% do run_query(config.get('sql_header')) %}
  {%- endif -%}

  {% do adapter.open_streams(model) %}
  {%- set select = compiled_code -%}
  {%- if config.get('contract').enforced and model.language == 'sql' -%}
    {% do get_assert_columns_equivalent(compiled_code) %}
    {%- set select = get_select_subquery(compiled_code) -%}
  {%- endif -%}

  {%- set dry_run = adapter.is_dry_run(var('upsert_kafka_dry_run', false)) -%}
  {%- if not dry_run -%}{% do adapter.check_topic_grants(model, topic) %}{%- endif -%}
  {%- set command = adapter.command(graph, selected_resources) -%}
  {%- set publication = adapter.publish(model, select, target_relation, topic, should_full_refresh(), dry_run, command) -%}
  {% do store_result('main', response=publication) %}
  {%- if not dry_run -%}
    {% do adapter.apply_topic_grants(model, topic) %}
    {% do persist_docs(target_relation, model) %}
  {%- endif %}

  {{ run_hooks(post_hooks) }}
  {{ return({'relations': [target_relation]}) }}
{% endmacro %}
