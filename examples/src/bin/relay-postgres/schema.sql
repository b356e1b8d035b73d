CREATE TABLE outbox (
    id text PRIMARY KEY,
    position bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    payload text NOT NULL
);
