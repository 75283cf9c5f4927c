{#-- dbt run-operation adopt_topic --args '{model: orders}': makes the model the owner of its topic. --#}
{% macro adopt_topic(model) %}
  {%- if execute -%}{% do _log_lines(adapter.adopt_topics(_topics_of_named('adopt_topic', [model]))) %}{%- endif -%}
{% endmacro %}

{#-- dbt run-operation adopt_topics: the same for all models of the project, or for --args '{models: [orders, users]}'. --#}
{% macro adopt_topics(models=none) %}
  {%- if execute -%}
    {%- set owned = _topics_of_models() if models is none else _topics_of_named('adopt_topics', models) -%}
    {% do _log_lines(adapter.adopt_topics(owned)) %}
  {%- endif -%}
{% endmacro %}

{#-- dbt run-operation forget_topic --args '{topic: name}': removes the topic's state record. The topic stays. --#}
{% macro forget_topic(topic) %}
  {%- if execute -%}{% do _log_lines(adapter.forget_topic(_topics_of_models(), topic)) %}{%- endif -%}
{% endmacro %}

{#-- dbt run-operation drop_environment --args '{environment: ci_123, dry_run: false}': deletes the topics that this environment of
     this project created, except those that a consumer group reads. --#}
{% macro drop_environment(environment, dry_run=true) %}
  {%- if execute -%}
    {% do _log_lines(adapter.drop_environment(_topics_of_models(), environment, dry_run)) %}
    {%- if dry_run -%}
      {% do log("dry run: nothing is deleted. Add dry_run: false to --args to delete them.", info=true) %}
    {%- endif -%}
  {%- endif -%}
{% endmacro %}

{#-- Returns the models of these names, each with its topic. --#}
{% macro _topics_of_named(operation, names) %}
  {%- set found = [] -%}
  {%- for name in names -%}
    {%- set node = adapter.find_model(graph, operation, name, ['upsert_kafka', 'kafka']) -%}
    {%- do found.append({'node': node, 'topic': upsert_kafka_topic_of(node)}) -%}
  {%- endfor -%}
  {{ return(found) }}
{% endmacro %}
