-- Every debit adds a row, which makes a second effect visible.
CREATE TABLE IF NOT EXISTS ledger (
    entry_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id text NOT NULL,
    account text NOT NULL,
    cents bigint NOT NULL
);
