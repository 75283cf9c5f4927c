{{ config(materialized='upsert_kafka', unique_key='user_region', partitions=3) }}

select user_region, count(*) as pv, count(distinct user_id) as uv
from {{ ref('stg_pageviews') }}
group by user_region
