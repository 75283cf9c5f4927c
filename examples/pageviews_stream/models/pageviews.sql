{{ config(materialized='kafka_source', topic='pageviews') }}

select * from {{ kafka_topic() }}
