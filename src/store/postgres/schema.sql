CREATE TABLE IF NOT EXISTS once_records (
  scope        text     NOT NULL DEFAULT '',
  key_hash     bytea    NOT NULL CHECK (octet_length(key_hash) = 32),
  status       smallint NOT NULL,  -- 0 INPROGRESS, 1 COMPLETED, 2 FAILED; no ENUM: drivers look up its oid
  owner        bytea,              -- NULL after a hand-back
  attempt      bigint   NOT NULL,
  prior_status smallint,           -- the status that the last claim replaced; NULL for none
  lease_until  bigint,             -- ms since 1970
  expiration   bigint   NOT NULL,  -- s since 1970
  validation   bytea,
  data         bytea,
  encoding     smallint,           -- of data: 0 JSON, 1 DEFLATE, 4 by a codec; 2 none: dropped, 3 none: superseded
  v            integer  NOT NULL,
  operation    text,               -- as logs name it
  label        text,               -- the application's
  sequence     text     COLLATE "C",  -- in the order of an entity: 64 digits, as in once_marks
  claimed_at   bigint,             -- ms since 1970
  settled_at   bigint,             -- when the claim was completed, failed or handed back
  released     bigint,             -- the attempt that an operator has released
  -- Days since 1970. An index on expiration itself would keep every settle from being a HOT update.
  purge_day    integer  GENERATED ALWAYS AS ((expiration / 86400)::integer) STORED,
  PRIMARY KEY (key_hash, scope)
) WITH (fillfactor = 70);
CREATE INDEX IF NOT EXISTS once_records_purge ON once_records (purge_day);
