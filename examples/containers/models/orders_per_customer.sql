{{ config(materialized='upsert_kafka', unique_key='customer') }}

select customer, count(*) as orders, sum(amount) as amount
from {{ ref('orders') }}
group by customer
