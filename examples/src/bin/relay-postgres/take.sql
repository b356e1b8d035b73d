WITH taken AS (
    DELETE FROM outbox
    -- An array is made once. The planner may run `IN (SELECT …)` again, and lock more rows than the limit.
    WHERE id = ANY (ARRAY(
        SELECT id FROM outbox ORDER BY position LIMIT $1 FOR UPDATE SKIP LOCKED
    ))
    RETURNING id, position, payload
)
SELECT id, payload FROM taken ORDER BY position
