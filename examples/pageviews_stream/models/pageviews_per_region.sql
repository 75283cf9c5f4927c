{{ config(materialized='upsert_kafka', unique_key='user_region', partitions=3, trigger='continuous', trigger_interval='1 second',
          sink_delivery_guarantee='exactly-once') }}

select user_region, count(*) as pv, {{ count_distinct('user_id') }} as uv
from {{ stream(ref('pageviews')) }}
group by user_region
