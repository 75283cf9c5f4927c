-- Huawei DLI, Upsert Kafka result table: the unchanged WITH clause; PRIMARY KEY (car_id) is unique_key.
{{ config(
    materialized='upsert_kafka',
    unique_key='car_id',
    with_options={
        'connector.type': 'upsert-kafka',
        'connector.version': '0.11',
        'connector.topic': 'cars',
        'format.type': 'csv'
    }
) }}

select car_id, car_owner, car_brand, car_speed from {{ ref('raw_cars') }}
