-- Huawei DLI, Kafka result table: rows as events, without a key.
{{ config(
    materialized='kafka',
    with_options={
        'connector.type': 'kafka',
        'connector.version': '0.10',
        'connector.topic': 'car_events',
        'connector.sink-partitioner': 'round-robin',
        'format.type': 'csv',
        'update-mode': 'append'
    }
) }}

select car_id, car_owner, car_brand, car_speed from {{ ref('raw_cars') }}
