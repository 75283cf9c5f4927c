{#-- The steps of both sinks, upsert_kafka and kafka: what differs is in the options. --#}
{% macro publish_model() %}
  {%- set options = adapter.check_options(model) -%}
  {%- set target_relation = this.incorporate(type='view') -%}
  {%- set existing_relation = load_cached_relation(this) -%}
  {%- set topic = generate_topic_name(options.topic, model) -%}

  {{ run_hooks(pre_hooks) }}
  {%- if config.get('sql_header') -%}
    {% do run_query(config.get('sql_header')) %}
  {%- endif -%}

  {%- set select = compiled_code -%}
  {%- if config.get('contract').enforced and model.language == 'sql' -%}
    {% do get_assert_columns_equivalent(compiled_code) %}
    {%- set select = get_select_subquery(compiled_code) -%}
  {%- endif -%}

  {%- set publication = adapter.publish(
      model, options, select, target_relation, existing_relation, topic,
      should_full_refresh(), var('upsert_kafka_dry_run', false)) -%}
  {% do store_result('main', response=publication) %}
  {%- if not var('upsert_kafka_dry_run', false) -%}
    {% do adapter.apply_topic_grants(model, options, topic) %}
    {% do persist_docs(target_relation, model) %}
  {%- endif %}

  {{ run_hooks(post_hooks) }}
  {{ return({'relations': [target_relation, target_relation.topic_table]}) }}
{% endmacro %}
