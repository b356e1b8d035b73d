//! The rows that a batch reads if the table's statistics do not contain its scope.

use lambda_once::{
    record::KeyHash,
    store::{
        amend::{Amend, AmendRequest, Amended, Amendment},
        postgres::{PostgresStore, tokio_postgres::Client},
    },
};

use super::{sessions::*, *};

/// Enough for a scan of the whole table to cost more than a lookup of each key.
const ROWS: i64 = 40_000;
const BATCH: usize = 100;
/// A settle reads a row to lock it, and again to change it. Of rows that have just been changed it also finds former versions.
const READS_PER_KEY: i64 = 8;

/// A table with a scope that its statistics do not contain, so the planner assumes that it is small.
struct Table {
    admin: Client,
    name: String,
    /// A batch each to complete, to release and to amend.
    claims: Vec<ClaimRequest>,
}

impl Table {
    async fn new() -> Self {
        let name = support::unique_name("records");
        let admin = support::postgres::client(&support::postgres::connection().await).await;
        let table = Self { admin, name, claims: claims(BATCH * 3) };
        table.store("known").await.migrate().await.unwrap();
        let insert = |scope: &str, rows: i64| {
            format!(
                "INSERT INTO \"{}\" (scope, key_hash, status, owner, attempt, lease_until, expiration, v, claimed_at) \
                 SELECT '{scope}', sha256(i::text::bytea), 0, decode(repeat('00', 16), 'hex'), 1, 0, 9999999999, 1, 0 FROM generate_series(1, {rows}) AS i;",
                table.name
            )
        };
        let known = format!(
            "ALTER TABLE \"{0}\" SET (autovacuum_enabled = off); {1} ANALYZE \"{0}\"",
            table.name,
            insert("known", 1_000)
        );
        table.admin.batch_execute(&known).await.unwrap();
        table.admin.batch_execute(&insert("new", ROWS)).await.unwrap();
        table
    }

    /// Returns a store with the index for lists, which the planner may prefer.
    async fn store(&self, scope: &str) -> PostgresStore {
        let mut connection = support::postgres::connection().await;
        connection.application_name(&self.name);
        let config = support::postgres::config(connection).table(&self.name).scope(scope).listing_index(true);
        config.lock_timeout(Duration::from_millis(200)).build().unwrap()
    }

    /// Returns the rows that were read from the table, after the end of all stores: a session reports them when it ends.
    async fn reads(&self) -> i64 {
        let ended = async {
            let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1";
            while self.admin.query_one(sql, &[&self.name]).await.unwrap().get::<_, i64>(0) > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), ended).await.expect("the sessions end with their stores");
        let sql = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = $1";
        self.admin.query_one(sql, &[&self.name]).await.unwrap().get(0)
    }

    /// Runs a batch, and asserts that it reads rows of its keys alone.
    async fn assert_reads_its_keys<T>(&self, what: &str, batch: impl AsyncFnOnce(&PostgresStore) -> T) -> T {
        let before = self.reads().await;
        let store = self.store("new").await;
        let answer = batch(&store).await;
        drop(store);
        let reads = self.reads().await - before;
        let keys = i64::try_from(BATCH).unwrap();
        assert!((1..=READS_PER_KEY * keys).contains(&reads), "{what}: {reads} rows of {ROWS} for {BATCH} keys");
        answer
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_of_a_scope_without_statistics_read_only_their_keys() {
    let table = Table::new().await;
    let (done, released, lapsed) =
        (&table.claims[..BATCH], &table.claims[BATCH..2 * BATCH], &table.claims[2 * BATCH..]);
    let is_done = |answer: Result<Settled, Error>| assert_eq!(answer.unwrap(), Settled::Done { found: None });
    for (what, batch) in [("claims", done), ("more claims", released)] {
        let granted = table.assert_reads_its_keys(what, async |store| store.claim(batch).await).await;
        assert!(granted.iter().all(is_granted));
    }
    let rivals: Vec<_> = done.iter().map(rival).collect();
    let refused = table.assert_reads_its_keys("duplicates", async |store| store.claim(&rivals).await).await;
    assert!(refused.iter().all(|answer| matches!(answer, Ok(Claimed::Refused(_)))));
    // One of its keys has a lapsed claim, which is locked.
    let transaction = Transaction::begin().await;
    let key: Vec<u8> = table.admin.query_one("SELECT sha256('1')", &[]).await.unwrap().get(0);
    let mut around = claims(BATCH);
    around[7].key = KeyHash::from_bytes(key.try_into().unwrap());
    let lock = format!("SELECT FROM \"{}\" WHERE key_hash = {} FOR UPDATE", table.name, literal(&around[7]));
    transaction.execute(&lock).await;
    let answers = table.assert_reads_its_keys("claims around a lock", async |store| store.claim(&around).await).await;
    assert_eq!(answers.iter().filter(|answer| is_granted(answer)).count(), BATCH - 1);
    transaction.roll_back().await;
    for (what, batch, settlement) in [("outcomes", done, complete("1")), ("releases", released, RELEASE)] {
        let settles: Vec<_> = batch.iter().map(|claim| settle_of(claim, settlement.clone())).collect();
        let settled = table.assert_reads_its_keys(what, async |store| store.settle(&settles).await).await;
        settled.into_iter().for_each(is_done);
    }

    let clock = support::future_clock();
    let store = table.store("new").await.with_clock(clock.clone());
    assert!(store.claim(lapsed).await.iter().all(is_granted));
    let mut amendments = Vec::new();
    for claim in lapsed {
        let record = read_one(&store, claim).await.unwrap();
        let request = AmendRequest::new(claim.key, &record, Amendment::Forget { completed: false });
        amendments.push(AmendRequest { skew_margin: MARGIN, ..request });
    }
    drop(store);
    clock.advance(LAPSE);
    let amend = async |store: &PostgresStore| store.clone().with_clock(clock.clone()).amend(&amendments).await;
    let amended = table.assert_reads_its_keys("amendments", amend).await;
    assert!(amended.into_iter().all(|answer| matches!(answer, Ok(Amended::Changed))));
}
