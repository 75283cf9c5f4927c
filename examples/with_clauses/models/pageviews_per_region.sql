-- Alibaba Cloud, Upsert Kafka result table: PRIMARY KEY (user_region) is unique_key.
{{ config(
    materialized='upsert_kafka',
    unique_key='user_region',
    with_options={
        'connector': 'upsert-kafka',
        'topic': 'pageviews_per_region',
        'key.format': 'avro',
        'value.format': 'avro'
    }
) }}

select user_region, count(*) as pv, count(distinct user_id) as uv
from {{ ref('pageviews') }}
group by user_region
