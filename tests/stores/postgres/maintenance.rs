//! The table: its creation, expired records, and the checks of `warm_up`.

use futures_util::future::join_all;
use lambda_once::{
    clock::ManualClock,
    order::Entity,
    store::{
        amend::Amend,
        listing::{List, ListRequest, ListedState},
        postgres::{PostgresStore, tokio_postgres},
    },
};
use tracing::Level;

use super::{sessions::*, *};
use crate::support::{
    collector::Collector,
    wire::{Protocol, Proxy, host_and_port},
};

/// Returns a store on a separate table, with a clock, and the table's name.
async fn on_own_table(clock: &ManualClock) -> (PostgresStore, String) {
    let table = support::unique_name("records");
    let config = support::postgres::config(support::postgres::connection().await).table(&table);
    let store = config.build().unwrap().with_clock(clock.clone());
    store.migrate().await.unwrap();
    (store, table)
}

/// Returns a store on a separate table, which it reaches through a proxy.
async fn through_a_proxy(clock: &ManualClock) -> (PostgresStore, Proxy) {
    let url = support::postgres::url();
    let proxy = Proxy::start(Protocol::Postgres, host_and_port(&url)).await;
    let config = support::postgres::config(proxy.in_place_of(&url).parse().unwrap());
    let store = config.table(support::unique_name("records")).build().unwrap().with_clock(clock.clone());
    store.migrate().await.unwrap();
    (store, proxy)
}

/// Returns the number of requests with this text.
fn sent(proxy: &Proxy, text: &str) -> usize {
    proxy.requests().iter().filter(|request| request.command.contains(text)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn migrations_that_start_at_once_all_succeed() {
    let connection = support::postgres::connection().await;
    for _ in 0..5 {
        let table = support::unique_name("Once \"and\" again");
        let stores: Vec<_> = (0..8)
            .map(|_| support::postgres::config(connection.clone()).schema("public").table(&table).build().unwrap())
            .collect();
        let tasks = stores.iter().cloned().map(|store| tokio::spawn(async move { store.migrate().await }));
        join_all(tasks).await.into_iter().for_each(|migrated| migrated.unwrap().unwrap());
        let claim = claim();
        granted(&stores[0], &claim).await;
        assert_eq!(stores[0].purge_expired(1).await.unwrap(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_of_a_table_that_exists_waits_for_nobody() {
    let claim = claim();
    granted(&support::postgres::migrated().await, &claim).await;
    let transaction = Transaction::begin().await;
    // Every statement except a lookup in the catalog would wait for this lock.
    transaction.execute(&format!("DELETE FROM once_records WHERE key_hash = {}", literal(&claim))).await;
    let role = support::postgres::role(&["lock_timeout = '200ms'"]).await;
    support::postgres::config(role).build().unwrap().migrate().await.unwrap();
    transaction.roll_back().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_of_a_table_that_exists_takes_no_lock() {
    let (store, proxy) = through_a_proxy(&support::future_clock()).await;
    assert_eq!(sent(&proxy, "pg_advisory_xact_lock"), 1, "the first");
    store.migrate().await.unwrap();
    assert_eq!(sent(&proxy, "pg_advisory_xact_lock"), 1, "the second");
}

/// Records that expire later on the same day have the same index entry, so each call of a loop would read all of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_purge_leaves_the_records_of_a_day_until_it_is_over() {
    let clock = support::future_clock();
    let (store, _) = on_own_table(&clock).await;
    let [last_but_one, last, next] =
        [2, 1, 0].map(|earlier| (claim(), MIDNIGHT.before(RETENTION + Duration::from_secs(earlier))));
    for (claim, time) in [&last_but_one, &last, &next] {
        clock.set(*time);
        granted(&store, claim).await;
    }
    clock.set(MIDNIGHT.before(Duration::from_millis(1)));
    assert_eq!(store.purge_expired(100).await.unwrap(), 0, "the day is not over");
    clock.set(MIDNIGHT);
    assert_eq!(store.purge_expired(100).await.unwrap(), 2, "those of its last two seconds");
    clock.advance(Duration::from_secs(86_400));
    assert_eq!(store.purge_expired(100).await.unwrap(), 1, "that of the next day");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_deletes_expired_records_in_bounded_steps_and_skips_locked_ones() {
    let clock = support::future_clock();
    let (store, table) = on_own_table(&clock).await;
    let (newer, claims) = (claim(), claims(10));
    clock.set(MIDNIGHT.before(RETENTION + Duration::from_secs(1)));
    store.claim(&claims).await;
    settle_one(&store, &claims[1], complete("1")).await.unwrap();
    clock.set(MIDNIGHT);
    granted(&store, &newer).await;

    let transaction = Transaction::begin().await;
    let lock = format!("SELECT FROM \"{table}\" WHERE key_hash = {} FOR UPDATE", literal(&claims[0]));
    transaction.execute(&lock).await;
    let mut steps = Vec::new();
    while steps.last() != Some(&0) {
        let purge = tokio::time::timeout(Duration::from_secs(30), store.purge_expired(4));
        steps.push(purge.await.expect("it does not wait").unwrap());
    }
    assert_eq!(steps, [4, 4, 1, 0]);
    transaction.roll_back().await;
    assert_eq!(store.purge_expired(4).await.unwrap(), 1);
    for claim in &claims {
        assert_eq!(read_one(&store, claim).await, None);
    }
    assert!(read_one(&store, &newer).await.is_some());
}

/// The marks are left to the next call.
#[tokio::test(flavor = "multi_thread")]
async fn a_purge_that_has_reached_its_limit_sends_no_further_statement() {
    let clock = support::future_clock();
    let (store, proxy) = through_a_proxy(&clock).await;
    clock.set(MIDNIGHT.before(RETENTION + Duration::from_secs(1)));
    assert!(store.claim(&claims(3)).await.iter().all(is_granted));
    clock.set(MIDNIGHT);
    for (limit, deleted, statements) in [(0, 0, 0), (2, 2, 1), (2, 1, 2)] {
        proxy.reset();
        assert_eq!(store.purge_expired(limit).await.unwrap(), deleted);
        assert_eq!(sent(&proxy, "DELETE FROM"), statements, "{deleted} of at most {limit}");
    }
}

/// Returns the configuration of connections whose plans give rows no order.
async fn unordered() -> tokio_postgres::Config {
    let mut connection = support::postgres::connection().await;
    connection.options("-c enable_indexscan=off -c enable_indexonlyscan=off -c enable_bitmapscan=off");
    connection
}

/// Also if no index gives the rows this order.
#[tokio::test(flavor = "multi_thread")]
async fn a_purge_deletes_the_oldest_records_and_marks_first() {
    let clock = support::future_clock();
    let config = support::postgres::config(unordered().await).table(support::unique_name("records"));
    let store = config.build().unwrap().with_clock(clock.clone());
    store.migrate().await.unwrap();
    let claims = [ordered(&entity(), 1), ordered(&entity(), 1)];
    let [newer, older] = &claims;
    // The newer one's rows come first.
    for (claim, days) in [(newer, 2), (older, 1)] {
        clock.set(MIDNIGHT.after(Duration::from_secs(days * 86_400)));
        granted(&store, claim).await;
        settle_one(&store, claim, complete("1")).await.unwrap();
    }
    clock.set(MIDNIGHT.after(Duration::from_secs(5 * 86_400)));
    for left in [3, 2, 1, 0] {
        assert_eq!(store.purge_expired(1).await.unwrap(), 1);
        let records = read_one(&store, newer).await.is_some();
        let marks = store.marks(&[Entity::of(&newer.key), Entity::of(&older.key)]).await;
        let marks: Vec<bool> = marks.into_iter().map(|mark| mark.unwrap().is_some()).collect();
        assert_eq!((records, read_one(&store, older).await.is_some()), (left > 2, false), "{left} left");
        assert_eq!(marks, [left > 0, left > 1], "{left} left");
    }
}

/// Their records and marks have not expired.
#[tokio::test(flavor = "multi_thread")]
async fn a_purge_leaves_equal_keys_of_another_scope() {
    let clock = support::future_clock();
    let (expired, table) = on_own_table(&clock).await;
    let config = support::postgres::config(support::postgres::connection().await).table(&table);
    let standing = config.build().unwrap().with_clock(clock.clone());
    let claims = [claim(), ordered(&entity(), 1)];
    clock.set(MIDNIGHT.before(RETENTION + Duration::from_secs(1)));
    for claim in &claims {
        granted(&expired, claim).await;
        settle_one(&expired, claim, complete("1")).await.unwrap();
    }
    clock.set(MIDNIGHT);
    for claim in &claims {
        granted(&standing, claim).await;
        settle_one(&standing, claim, complete("1")).await.unwrap();
    }
    assert_eq!(expired.purge_expired(100).await.unwrap(), 3, "two records and a mark");
    for claim in &claims {
        assert_eq!(read_one(&expired, claim).await, None);
        assert!(read_one(&standing, claim).await.is_some());
    }
    let entity = Entity::of(&claims[1].key);
    assert_eq!(expired.marks(&[entity]).await.remove(0).unwrap(), None);
    assert!(standing.marks(&[entity]).await.remove(0).unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_adds_the_marks_to_records_that_exist_and_waits_for_nobody() {
    let connection = support::postgres::connection().await;
    let admin = support::postgres::client(&connection).await;
    for _ in 0..3 {
        let (store, table) = on_own_table(&support::future_clock()).await;
        let plain = claim();
        granted(&store, &plain).await;
        // The state that a version without order markers has left.
        admin.batch_execute(&format!("DROP TABLE \"{table}_marks\"")).await.unwrap();
        let ordered = ordered(&entity(), 1);
        let error = claim_one(&store, &ordered).await.unwrap_err();
        assert_eq!(of(&error), TABLE);
        assert!(error.to_string().contains("migrate"), "{error}");
        granted(&store, &claim()).await;

        let transaction = Transaction::begin().await;
        transaction.execute(&format!("DELETE FROM \"{table}\" WHERE key_hash = {}", literal(&plain))).await;
        let tasks = (0..4).map(|_| {
            let store = store.clone();
            tokio::spawn(async move { tokio::time::timeout(Duration::from_secs(30), store.migrate()).await })
        });
        let migrated = join_all(tasks.collect::<Vec<_>>()).await;
        migrated.into_iter().for_each(|migrated| migrated.unwrap().expect("it does not wait").unwrap());
        granted(&store, &ordered).await;
        transaction.roll_back().await;
        assert!(read_one(&store, &plain).await.is_some());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_on_the_servers_clock_keeps_unexpired_records() {
    let table = support::unique_name("records");
    let config = support::postgres::config(support::postgres::connection().await).table(&table);
    let store = config.build().unwrap();
    store.migrate().await.unwrap();
    let claims = [claim(), ordered(&entity(), 1), claim(), ordered(&entity(), 1)];
    let (expired, standing) = claims.split_at(2);
    assert!(store.claim(&claims).await.iter().all(is_granted));
    let admin = support::postgres::client(&support::postgres::connection().await).await;
    for claim in expired {
        let entity = Entity::of(&claim.key);
        let earlier = "SET expiration = extract(epoch FROM now()) - 2 * 86400";
        let records = format!("UPDATE \"{table}\" {earlier} WHERE key_hash = $1");
        admin.execute(&records, &[&claim.key.as_bytes().as_slice()]).await.unwrap();
        let marks = format!("UPDATE \"{table}_marks\" {earlier} WHERE entity = $1");
        admin.execute(&marks, &[&entity.as_bytes().as_slice()]).await.unwrap();
    }
    assert_eq!(store.purge_expired(10).await.unwrap(), 3, "two records and a mark");
    for (claims, stand) in [(expired, false), (standing, true)] {
        for claim in claims {
            assert_eq!(read_one(&store, claim).await.is_some(), stand);
        }
    }
    assert!(store.marks(&[Entity::of(&standing[1].key)]).await.remove(0).unwrap().is_some());
}

#[tokio::test]
async fn warming_warns_of_settings_that_do_harm() {
    const NAMES: [&str; 4] =
        ["no lock_timeout", "no client_connection_check_interval", "synchronous_commit = off", "isolation level"];
    let checked = "client_connection_check_interval = '1s'";
    let locks = "lock_timeout = '200ms'";
    for (settings, warnings) in [
        (&[][..], &NAMES[..2]),
        (&[checked], &NAMES[..1]),
        (&[locks], &[]),
        (&[locks, "synchronous_commit = off"], &NAMES[2..3]),
        (&[locks, "default_transaction_isolation = 'repeatable read'"], &NAMES[3..]),
    ] {
        let store = support::postgres::config(support::postgres::role(settings).await).build().unwrap();
        let (collector, _guard) = Collector::install();
        store.warm_up().await.unwrap();
        let lines = collector.lines();
        let told: Vec<&str> = lines
            .iter()
            .filter(|line| line.level == Level::WARN)
            .flat_map(|line| NAMES.into_iter().filter(|name| line.get("message").contains(name)))
            .collect();
        assert_eq!(told, warnings, "{settings:?}: {lines:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_table_is_named_at_once_and_by_every_call() {
    let config = support::postgres::config(support::postgres::connection().await);
    let store = config.table(support::unique_name("missing")).build().unwrap();
    let mut errors = vec![store.warm_up().await.unwrap_err(), claim_one(&store, &claim()).await.unwrap_err()];
    errors.push(settle_one(&store, &claim(), RELEASE).await.unwrap_err());
    errors.push(store.purge_expired(1).await.unwrap_err());
    for error in errors {
        assert_eq!(of(&error), TABLE);
        assert!(error.to_string().contains("migrate"), "{error}");
    }
    store.migrate().await.unwrap();
    store.warm_up().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_another_shape_is_an_error_of_the_table() {
    let (store, table) = on_own_table(&support::future_clock()).await;
    let admin = support::postgres::client(&support::postgres::connection().await).await;
    let alter = async |change: &str| admin.batch_execute(&format!("ALTER TABLE \"{table}\" {change}")).await.unwrap();
    alter("ADD COLUMN tenant text NOT NULL").await;
    assert_eq!(of(&claim_one(&store, &claim()).await.unwrap_err()), TABLE);
    alter("DROP COLUMN tenant").await;

    // PostgreSQL quotes a row that violates a constraint.
    let claim = claim();
    granted(&store, &claim).await;
    alter("ADD CHECK (data IS NULL)").await;
    let error = settle_one(&store, &claim, complete("\"hunter2\"")).await.unwrap_err();
    assert_eq!(of(&error), TABLE);
    let hexadecimal = b"hunter2".iter().fold(String::new(), |digits, byte| digits + &format!("{byte:02x}"));
    assert!(!format!("{error:?}").contains(&hexadecimal), "{error:?}");

    // The response cannot be read, although the request was applied.
    alter("ALTER COLUMN attempt TYPE integer").await;
    let error = claim_one(&store, &super::claim()).await.unwrap_err();
    assert_eq!(of(&error), (ErrorKind::Table, ErrorStatus::Ambiguous));
    alter("DROP COLUMN owner").await;
    assert_eq!(of(&claim_one(&store, &super::claim()).await.unwrap_err()), TABLE);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_partitioned_by_scope_serves_as_well() {
    let clock = support::future_clock();
    let table = support::unique_name("records");
    let connection = support::postgres::connection().await;
    let store = |scope: &str| {
        let config = support::postgres::config(connection.clone()).table(&table).scope(scope);
        config.build().unwrap().with_clock(clock.clone())
    };
    // A partitioned table takes no storage parameters, but its partitions do.
    let schema = store("one").schema().replace("WITH (fillfactor = 70)", "PARTITION BY LIST (scope)");
    let admin = support::postgres::client(&connection).await;
    admin.batch_execute(&schema).await.unwrap();
    for scope in ["one", "two"] {
        for table in [table.clone(), format!("{table}_marks")] {
            let create = "CREATE TABLE \"%-%s\" PARTITION OF \"%\" FOR VALUES IN ('%s') WITH (fillfactor = 70)";
            admin.batch_execute(&create.replace("%s", scope).replace('%', &table)).await.unwrap();
        }
    }
    store("one").migrate().await.unwrap();
    let claims = claims(20);
    for scope in ["one", "two"] {
        let store = store(scope);
        assert!(store.claim(&claims).await.into_iter().all(|answer| matches!(answer, Ok(Claimed::Granted(_)))));
        let duplicates: Vec<_> = claims.iter().map(rival).collect();
        assert!(store.claim(&duplicates).await.into_iter().all(|answer| matches!(answer, Ok(Claimed::Refused(_)))));
        let settlement = |i: usize| if i < 10 { complete("1") } else { RELEASE };
        let settles: Vec<_> = claims.iter().enumerate().map(|(i, claim)| settle_of(claim, settlement(i))).collect();
        assert!(store.settle(&settles).await.into_iter().all(|answer| matches!(answer, Ok(Settled::Done { .. }))));
        let ordered = ordered(&entity(), 1);
        granted(&store, &ordered).await;
        assert_eq!(settle_one(&store, &ordered, complete("1")).await.unwrap(), Settled::Done { found: None });
    }
    // A scope without a partition.
    assert_eq!(of(&claim_one(&store("three"), &claims[0]).await.unwrap_err()), TABLE);
    clock.advance(LEASE + MARGIN);
    for scope in ["one", "two"] {
        // The settled claims are completed or deleted.
        granted(&store(scope), &claims[19]).await;
    }
    clock.advance(LEASE + MARGIN);
    let request = ListRequest { skew_margin: Duration::ZERO, ..ListRequest::new(ListedState::Lapsed) };
    let lapsed = store("two").list(&request).await.unwrap();
    assert_eq!(lapsed.records.iter().map(|found| found.key).collect::<Vec<_>>(), [claims[19].key]);
    assert_eq!((lapsed.read, lapsed.next), (12, None), "the records of the scope");
    clock.advance(Duration::from_secs(86_400));
    assert_eq!(store("one").purge_expired(100).await.unwrap(), 26);
}

/// The index is added to an existing table. Lists by it read only records without a success, the oldest claim first.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_by_the_index_reads_only_operations_without_a_success() {
    let clock = support::future_clock();
    let (plain, table) = on_own_table(&clock).await;
    let store = |scope: &str, connection| {
        let config = support::postgres::config(connection).table(&table).scope(scope).listing_index(true);
        config.build().unwrap().with_clock(clock.clone())
    };
    let connection = support::postgres::connection().await;
    let (listed, other) = (store("one", connection.clone()), store("two", connection.clone()));
    drop(plain);
    listed.migrate().await.unwrap();
    listed.migrate().await.unwrap();
    let admin = support::postgres::client(&connection).await;
    let indexes = "SELECT count(*) FROM pg_indexes WHERE tablename = $1 AND indexname = $1 || '_open' \
                   AND indexdef LIKE '% WHERE (status <> 1)'";
    assert_eq!(admin.query_one(indexes, &[&table]).await.unwrap().get::<_, i64>(0), 1);
    granted(&other, &claim()).await;
    let done = claims(20);
    for claim in &done {
        granted(&listed, claim).await;
        settle_one(&listed, claim, complete("1")).await.unwrap();
    }
    let open = claims(3);
    for claim in &open {
        granted(&listed, claim).await;
        clock.advance(Duration::from_secs(1));
    }
    let page = listed.list(&ListRequest::new(ListedState::InProgress)).await.unwrap();
    assert_eq!((page.read, page.next), (3, None));
    let keys = |claims: &[ClaimRequest]| claims.iter().map(|claim| claim.key).collect::<Vec<_>>();
    assert_eq!(page.records.iter().map(|found| found.key).collect::<Vec<_>>(), keys(&open));
    let request = ListRequest { max_reads: 2, ..ListRequest::new(ListedState::InProgress) };
    let first = listed.list(&request).await.unwrap();
    let second = listed.list(&ListRequest { after: first.next.clone(), ..request }).await.unwrap();
    let both = first.records.iter().chain(&second.records).map(|found| found.key).collect::<Vec<_>>();
    assert_eq!((both, second.next), (keys(&open), None));
}

/// Each page starts after the last row of the previous one, and reads at most the requested number of rows.
#[tokio::test(flavor = "multi_thread")]
async fn the_pages_of_a_list_read_each_row_once() {
    for is_indexed in [false, true] {
        // On the server's clock.
        let table = support::unique_name("records");
        let config = support::postgres::config(unordered().await).table(&table).listing_index(is_indexed);
        let store = config.build().unwrap();
        store.migrate().await.unwrap();
        let short = Duration::from_millis(1);
        let claims = claims(5).into_iter().map(|claim| ClaimRequest { lease: short, skew_margin: short, ..claim });
        let claims: Vec<_> = claims.collect();
        assert!(store.claim(&claims).await.iter().all(is_granted));
        granted(&store, &ClaimRequest { lease: RETENTION, ..claim() }).await;
        // Moves the row of the first key after the others.
        let first = format!("SELECT key_hash FROM \"{table}\" ORDER BY claimed_at, key_hash LIMIT 1");
        let moves = format!("UPDATE \"{table}\" SET label = 'moved' WHERE key_hash = ({first})");
        support::postgres::client(&support::postgres::connection().await).await.batch_execute(&moves).await.unwrap();
        let request = ListRequest { skew_margin: short, ..ListRequest::new(ListedState::Lapsed) };
        let lapsed = async {
            while store.list(&request).await.unwrap().records.len() != claims.len() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), lapsed).await.expect("the leases have ended");

        let (mut request, mut listed, mut reads) = (ListRequest { max_reads: 2, ..request }, Vec::new(), Vec::new());
        loop {
            let page = store.list(&request).await.unwrap();
            reads.push(page.read);
            listed.extend(page.records.into_iter().map(|found| found.key));
            if page.next.is_none() {
                break;
            }
            assert!(page.next != request.after, "each page continues after the previous one");
            request.after = page.next;
        }
        assert_eq!(reads.iter().sum::<u64>(), 6, "{reads:?}");
        assert!(reads.iter().all(|read| *read <= 2), "{reads:?}");
        listed.sort_unstable();
        let mut keys: Vec<_> = claims.iter().map(|claim| claim.key).collect();
        keys.sort_unstable();
        assert_eq!(listed, keys);
    }
}

/// The same table and index in another schema do not count.
#[tokio::test(flavor = "multi_thread")]
async fn each_schema_gets_its_own_index() {
    let connection = support::postgres::connection().await;
    let admin = support::postgres::client(&connection).await;
    let [indexed, plain] = ["indexed", "plain"].map(support::unique_name);
    for schema in [&indexed, &plain] {
        admin.batch_execute(&format!("CREATE SCHEMA \"{schema}\"")).await.unwrap();
    }
    let migrate = async |schema: &str, is_listed: bool| {
        let config = support::postgres::config(connection.clone()).schema(schema).listing_index(is_listed);
        config.build().unwrap().migrate().await.unwrap();
    };
    migrate(&indexed, true).await;
    migrate(&plain, false).await;
    migrate(&plain, true).await;
    let indexes = "SELECT count(*) FROM pg_indexes WHERE schemaname = $1 AND indexname = 'once_records_open'";
    for schema in [&indexed, &plain] {
        assert_eq!(admin.query_one(indexes, &[schema]).await.unwrap().get::<_, i64>(0), 1, "{schema}");
        admin.batch_execute(&format!("DROP SCHEMA \"{schema}\" CASCADE")).await.unwrap();
    }
}
