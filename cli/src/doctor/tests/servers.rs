//! Servers of Redis and PostgreSQL.

use super::{
    super::{
        facts::{Pooler, Postgres, PostgresTable, Redis, Service},
        finding::{Report, Severity},
        rules,
    },
    assert_only, found,
};

fn with_redis(change: impl FnOnce(&mut Redis)) -> Report {
    let info = [
        ("redis_version", "7.2.4"),
        ("maxmemory_policy", "noeviction"),
        ("aof_enabled", "1"),
        ("role", "master"),
        ("cluster_enabled", "0"),
    ];
    let mut redis = Redis {
        place: "redis://h:6379".into(),
        prefix: "orders:".into(),
        info: info.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        save: Some("3600 1".into()),
        denied: Ok(Vec::new()),
        as_cluster: Some(false),
        service: Service::Own,
    };
    change(&mut redis);
    let mut report = Report::default();
    rules::redis(&redis, &mut report);
    report
}

fn set(name: &'static str, value: &'static str) -> impl FnOnce(&mut Redis) {
    move |redis| {
        redis.info.insert(name.to_owned(), value.to_owned());
    }
}

fn good_postgres() -> Postgres {
    let settings = [
        ("lock_timeout", "200ms"),
        ("client_connection_check_interval", "1s"),
        ("synchronous_commit", "on"),
        ("default_transaction_isolation", "read committed"),
    ];
    let table = |name: &str| PostgresTable {
        name: name.into(),
        wanted: vec!["scope".into(), "label".into()],
        columns: vec!["scope".into(), "label".into(), "of_the_operator".into()],
        has_primary_key: true,
        has_purge_index: true,
        has_listing_index: true,
        has_autovacuum: true,
        denied: Vec::new(),
        oldest_days: Some(1),
        denied_schema: None,
    };
    Postgres {
        place: "postgres://h/d".into(),
        role: "once-app".into(),
        version: 140_000,
        is_standby: false,
        settings: settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        records: table("once_records"),
        marks: table("once_marks"),
        wants_index: false,
        pooler: Pooler::None,
    }
}

fn with_postgres(change: impl FnOnce(&mut Postgres)) -> Report {
    let mut postgres = good_postgres();
    change(&mut postgres);
    let mut report = Report::default();
    rules::postgres(&postgres, &mut report);
    report
}

fn with_setting(name: &'static str, value: &'static str) -> Report {
    with_postgres(|postgres| {
        postgres.settings.insert(name.to_owned(), value.to_owned());
    })
}

fn with_records(change: impl FnOnce(&mut PostgresTable)) -> Report {
    with_postgres(|postgres| change(&mut postgres.records))
}

#[test]
fn good_servers_have_no_findings_and_nothing_unchecked() {
    assert_eq!(with_redis(|_| {}), Report::default());
    assert_eq!(with_postgres(|_| {}), Report::default());
}

#[test]
fn redis_evicts_records() {
    for policy in ["volatile-lru", "allkeys-lru", "volatile-ttl"] {
        assert_only(&with_redis(set("maxmemory_policy", policy)), "redis-evicts", Severity::Error, "noeviction");
    }
}

#[test]
fn redis_has_no_append_only_file() {
    let report = with_redis(set("aof_enabled", "0"));
    assert_only(&report, "redis-persistence-off", Severity::Warning, "appendonly yes");
}

#[test]
fn redis_has_no_persistence_at_all() {
    let report = with_redis(|redis| {
        set("aof_enabled", "0")(redis);
        redis.save = Some(String::new());
    });
    assert_only(&report, "redis-persistence-off", Severity::Error, "appendonly yes");
}

#[test]
fn redis_is_too_old() {
    assert_only(&with_redis(set("redis_version", "6.2.14")), "redis-version", Severity::Error, "Redis 7.0");
}

#[test]
fn redis_is_a_replica() {
    assert_only(&with_redis(set("role", "slave")), "redis-replica", Severity::Error, "primary");
}

#[test]
fn the_user_of_redis_lacks_commands() {
    let denied = || Ok(vec!["hset".into(), "pexpireat".into()]);
    let report = with_redis(|redis| redis.denied = denied());
    assert_only(&report, "redis-acl", Severity::Error, "ACL SETUSER USER ~orders:* +hset +pexpireat");
    // ElastiCache and MemoryDB refuse ACL SETUSER.
    let report = with_redis(|redis| (redis.denied, redis.service) = (denied(), Service::Nodes));
    assert_only(&report, "redis-acl", Severity::Error, "~orders:* +hset +pexpireat in the user's access string");
    assert!(!report.findings[0].fix.contains("SETUSER"), "{report:#?}");
}

#[test]
fn the_user_of_a_cluster_lacks_its_commands() {
    let report = with_redis(|redis| redis.denied = Ok(vec!["cluster|slots".into(), "asking".into()]));
    assert_only(&report, "redis-acl", Severity::Error, "ACL SETUSER USER ~orders:* +cluster|slots +asking");
    assert!(report.findings[0].reason.contains("access_denied"), "{report:#?}");
    let report = with_redis(|redis| redis.denied = Ok(vec!["asking".into()]));
    assert_only(&report, "redis-acl", Severity::Error, "ACL SETUSER USER ~orders:* +asking");
    assert!(report.findings[0].reason.contains("moving slot"), "{report:#?}");
}

#[test]
fn a_cluster_is_used_as_one_node() {
    assert_only(&with_redis(set("cluster_enabled", "1")), "redis-cluster-as-node", Severity::Error, "Config::cluster");
}

#[test]
fn one_node_is_used_as_a_cluster() {
    let report = with_redis(|redis| redis.as_cluster = Some(true));
    assert_only(&report, "redis-node-as-cluster", Severity::Error, "Config::new");
}

#[test]
fn the_code_decides_on_the_cluster() {
    let report = with_redis(|redis| {
        set("cluster_enabled", "1")(redis);
        redis.as_cluster = None;
    });
    assert_eq!((report.findings.len(), report.not_checked.len()), (0, 1), "{report:#?}");
}

#[test]
fn elasticache_serverless_reports_the_skipped_check() {
    let report = with_redis(|redis| {
        redis.info.remove("maxmemory_policy");
        (redis.save, redis.service, redis.as_cluster) = (None, Service::Serverless, None);
    });
    assert_eq!((report.findings.len(), report.not_checked.len()), (0, 1), "{report:#?}");
    assert!(report.not_checked[0].why.contains("no maximum"), "{report:#?}");
}

#[test]
fn the_persistence_of_a_managed_server_is_not_checked() {
    let report = with_redis(|redis| {
        set("aof_enabled", "0")(redis);
        (redis.save, redis.service) = (None, Service::Nodes);
    });
    assert_eq!((report.findings.len(), report.not_checked.len()), (0, 1), "{report:#?}");
    let evicts = with_redis(|redis| {
        set("maxmemory_policy", "volatile-lru")(redis);
        redis.service = Service::Nodes;
    });
    assert_only(&evicts, "redis-evicts", Severity::Error, "parameter group");
}

#[test]
fn without_info_permission_skipped_checks_are_reported() {
    let report = with_redis(|redis| {
        redis.info.clear();
        redis.denied = Err("refused".into());
    });
    let skipped: Vec<_> = report.not_checked.iter().map(|unchecked| unchecked.what.as_str()).collect();
    assert_eq!(skipped, ["eviction", "persistence", "the version", "cluster mode", "the user's permissions"]);
    assert_eq!(found(&report), []);
}

#[test]
fn postgres_is_too_old() {
    let report = with_postgres(|postgres| postgres.version = 130_015);
    assert_only(&report, "postgres-version", Severity::Error, "PostgreSQL 14");
}

#[test]
fn postgres_is_a_standby() {
    let report = with_postgres(|postgres| postgres.is_standby = true);
    assert_only(&report, "postgres-standby", Severity::Error, "read-write");
}

#[test]
fn postgres_has_another_isolation_level() {
    let report = with_setting("default_transaction_isolation", "serializable");
    assert_only(
        &report,
        "postgres-isolation",
        Severity::Warning,
        r#"ALTER ROLE "once-app" SET default_transaction_isolation"#,
    );
}

#[test]
fn postgres_has_no_lock_timeout() {
    assert_only(
        &with_setting("lock_timeout", "0"),
        "postgres-lock-timeout",
        Severity::Warning,
        "lock_timeout = '200ms'",
    );
}

#[test]
fn postgres_does_not_notice_lost_clients() {
    let report = with_postgres(|postgres| {
        for name in ["lock_timeout", "client_connection_check_interval"] {
            postgres.settings.insert(name.into(), "0".into());
        }
    });
    let expected = [("postgres-lock-timeout", Severity::Warning), ("postgres-connection-check", Severity::Warning)];
    assert_eq!(found(&report), expected);
}

#[test]
fn postgres_does_not_wait_for_the_disk() {
    let report = with_setting("synchronous_commit", "off");
    assert_only(&report, "postgres-synchronous-commit", Severity::Error, "synchronous_commit = on");
}

#[test]
fn the_pooler_is_in_statement_mode() {
    let report = with_postgres(|postgres| postgres.pooler = Pooler::Statement);
    assert_only(&report, "postgres-statement-pooling", Severity::Error, "pool_mode = transaction");
    let report = with_postgres(|postgres| postgres.pooler = Pooler::Likely);
    assert_eq!((report.findings.len(), report.not_checked.len()), (0, 1), "{report:#?}");
}

#[test]
fn the_table_of_records_is_missing() {
    let report = with_records(|table| table.columns.clear());
    assert_only(&report, "postgres-table-missing", Severity::Error, "migrate()");
}

#[test]
fn the_table_of_marks_is_missing() {
    let report = with_postgres(|postgres| postgres.marks.columns.clear());
    assert_only(&report, "postgres-marks-missing", Severity::Note, "migrate()");
}

#[test]
fn the_table_is_of_another_version() {
    let report = with_records(|table| table.columns.retain(|column| column != "label"));
    assert_only(&report, "postgres-columns-missing", Severity::Error, "ADD COLUMN");
    assert!(report.findings[0].reason.contains("label"), "{report:#?}");
}

#[test]
fn the_table_has_another_primary_key() {
    let report = with_records(|table| table.has_primary_key = false);
    assert_only(&report, "postgres-key-missing", Severity::Error, "primary key");
}

#[test]
fn the_index_of_the_purge_is_missing() {
    let report = with_records(|table| table.has_purge_index = false);
    assert_only(
        &report,
        "postgres-purge-index-missing",
        Severity::Warning,
        "CREATE INDEX CONCURRENTLY ON once_records",
    );
}

#[test]
fn the_index_for_lists_is_missing() {
    let report = with_postgres(|postgres| {
        postgres.wants_index = true;
        postgres.records.has_listing_index = false;
    });
    assert_only(&report, "postgres-listing-index-missing", Severity::Warning, "index=true");
    // Functions without `listing_index` need none.
    assert_eq!(found(&with_records(|table| table.has_listing_index = false)), []);
}

#[test]
fn autovacuum_is_off() {
    let report = with_records(|table| table.has_autovacuum = false);
    assert_only(&report, "postgres-autovacuum-off", Severity::Warning, "ALTER TABLE once_records RESET");
}

#[test]
fn the_role_lacks_privileges() {
    let report = with_records(|table| table.denied = vec!["UPDATE".into(), "DELETE".into()]);
    assert_only(
        &report,
        "postgres-privileges",
        Severity::Error,
        r#"GRANT UPDATE, DELETE ON once_records TO "once-app""#,
    );
}

#[test]
fn the_role_may_not_use_the_schema() {
    let report = with_records(|table| table.denied_schema = Some("orders".into()));
    assert_only(&report, "postgres-schema-usage", Severity::Error, r#"GRANT USAGE ON SCHEMA orders TO "once-app""#);
}

#[test]
fn the_purge_does_not_keep_up() {
    let late = |days| with_records(|table| table.oldest_days = Some(days));
    assert_only(&late(2), "postgres-purge-late", Severity::Warning, "purge_expired");
    assert_only(&late(8), "postgres-purge-late", Severity::Error, "purge_expired");
    assert_eq!(found(&with_records(|table| table.oldest_days = None)), []);
}
