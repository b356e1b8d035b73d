CREATE TABLE IF NOT EXISTS once_marks (
  scope           text     NOT NULL DEFAULT '',
  entity          bytea    NOT NULL CHECK (octet_length(entity) = 16),
  newest          text     COLLATE "C" CHECK (octet_length(newest) = 64),  -- sequences have all of their 64 digits
  owner           bytea,              -- of the claim that holds the entity; NULL for none, as the next three
  key_hash        bytea,
  sequence        text     COLLATE "C",
  lease_until     bigint,             -- ms since 1970
  doubt_keys      bytea[]  NOT NULL DEFAULT '{}',  -- operations that may have taken effect
  doubt_sequences text[]   COLLATE "C" NOT NULL DEFAULT '{}',
  expiration      bigint   NOT NULL,  -- s since 1970
  v               integer  NOT NULL DEFAULT 1,
  purge_day       integer  GENERATED ALWAYS AS ((expiration / 86400)::integer) STORED,
  PRIMARY KEY (entity, scope)
) WITH (fillfactor = 70);
CREATE INDEX IF NOT EXISTS once_marks_purge ON once_marks (purge_day);
