"""Mutations of the comparison of payloads: rules C2 and C3."""

from tools.tests.planted.plant import FINGERPRINT, MEMORY, RULES, Plant, suite

FINGERPRINTS = [
    # C2: only payloads of the same version are compared.
    Plant("C2", "payloads of different versions are compared", FINGERPRINT,
          "self.payload_version() == other.payload_version() && self.bytes", "self.bytes", MEMORY),
    Plant("C2", "the version of a payload is not stored", FINGERPRINT,
          "if self.payload_version() == DEFAULT_PAYLOAD_VERSION { hashes }", "if true { hashes }",
          "lib record::fingerprint::"),
    Plant("C2", "a mismatch does not name the difference", RULES,
          "Mismatch::new(state, ours.difference(&theirs))", "Mismatch::new(state, Default::default())", MEMORY),
    Plant("C2", "parts are named although the fingerprints have different ones", FINGERPRINT,
          "if !has_same_parts || !self", "if !self", "lib record::fingerprint::"),
    Plant("C2", "Redis compares payloads of different versions", "store/redis/claim.lua",
          "(string.match(stored, '^v%d+:') or '') == version", "true",
          suite("redis", "payloads_of_different_versions_are_not_compared")),
    Plant("C2", "Redis compares only the version instead of also the first half", "store/redis/claim.lua",
          "string.sub(stored, 1, #version + 32) ~= string.sub(given, 1, #version + 32)",
          "string.sub(stored, 1, #version) ~= string.sub(given, 1, #version)",
          suite("redis", "payloads_of_different_versions_are_not_compared")),
    Plant("C2", "PostgreSQL compares payloads of different versions", "store/postgres/claim.sql",
          "OR substring(r.validation FROM 33) <> substring(EXCLUDED.validation FROM 33)", "OR false",
          suite("postgres", "payloads_of_different_versions_are_not_compared")),
    Plant("C2", "DynamoDB treats every version as the first", "store/dynamodb/schema.rs",
          'None => ["0".to_owned(), "g".to_owned()],', 'None => ["0".to_owned(), "w".to_owned()],',
          suite("dynamodb", "payloads_of_different_versions_are_not_compared")),
    Plant("C2", "DynamoDB compares no payloads of version 2 and above", "store/dynamodb/schema.rs",
          'Some(end) => [text[..=end].to_owned(), format!("{};", &text[..end])],',
          'Some(end) => [text[..=end].to_owned(), text[..=end].to_owned()],',
          suite("dynamodb", "payloads_of_different_versions_are_not_compared")),
    Plant("C2", "equal parts show in records of different keys", "key/hash.rs",
          "[key, part.as_str().as_bytes()]", "[&key[..0], part.as_str().as_bytes()]",
          "lib http::fingerprint::"),
    Plant("C3", "a replay does not report that its payload was not compared", "idempotency/engine/ending.rs",
          "fingerprint.payload_version() != payload_version", "{ let _ = payload_version; fingerprint.payload_version() == 0 }",
          "operations engine::claims::"),
]
