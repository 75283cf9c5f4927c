-- Flink, Kafka SQL connector: CREATE TABLE user_behavior; its columns are in schema.yml.
-- depends_on: {{ ref('behavior_events') }}
{{ config(
    materialized='kafka_source',
    with_options={
        'connector': 'kafka',
        'topic': 'user_behavior',
        'properties.group.id': 'testGroup',
        'scan.startup.mode': 'earliest-offset',
        'format': 'csv'
    }
) }}

select user_id, item_id, category_id, behavior, ts, kafka_offset from {{ kafka_topic() }}
