{{ config(materialized='upsert_kafka', unique_key='name') }}

select name, count(*) as customers from {{ ref('customers') }} group by name
