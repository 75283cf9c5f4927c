{% materialization kafka, adapter='upsert_kafka', supported_languages=['sql', 'python'] %}
  {{ return(publish_model()) }}
{% endmaterialization %}
