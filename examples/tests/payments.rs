//! The service as a process, and clients that disconnect from it.

use crate::support::{Payments, client, printed};
use axum::http::Method;
use futures_util::future::join_all;
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpStream},
};

const ALICE: &str = "token-of-alice";
const BOB: &str = "token-of-bob";
const CHARGE: &str = r#"{"amount_cents":1999,"currency":"EUR"}"#;

/// Sends a charge, waits until it is being processed, and disconnects.
pub async fn send_and_disconnect(payments: &mut Payments, key: &str) {
    let mut connection = TcpStream::connect(payments.address()).await.unwrap();
    let request = format!(
        "POST /accounts/1/charges HTTP/1.1\r\nhost: payments\r\nauthorization: Bearer {ALICE}\r\n\
         content-type: application/json\r\nidempotency-key: {key}\r\ncontent-length: {}\r\n\r\n{CHARGE}",
        CHARGE.len()
    );
    connection.write_all(request.as_bytes()).await.unwrap();
    payments.logged("a charge begins").await;
}

#[tokio::test]
async fn a_repeated_charge_gets_the_first_response() {
    let payments = Payments::start(0).await;
    let first = payments.charge(ALICE, "k-1", CHARGE).await;
    assert_eq!((first.status.as_u16(), first.header("idempotency-replayed")), (201, None), "{first:?}");
    assert_eq!((&first.json()["account"], &first.json()["amount_cents"]), (&"1".into(), &1999.into()));

    let again = payments.charge(ALICE, "\"k-1\"", CHARGE).await;
    assert_eq!((again.status, &again.body), (first.status, &first.body));
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(payments.charges(ALICE).await, [first.json()]);

    let other = payments.charge(ALICE, "k-1", r#"{"amount_cents":1,"currency":"EUR"}"#).await;
    assert_eq!((other.status.as_u16(), &other.json()["code"]), (422, &"key_reused".into()));
    let bobs = payments.charge(BOB, "k-1", CHARGE).await;
    assert_eq!((bobs.status.as_u16(), bobs.header("idempotency-replayed")), (201, None));
    assert_eq!((payments.charges(ALICE).await.len(), payments.charges(BOB).await), (1, vec![bobs.json()]));
}

#[tokio::test]
async fn a_caller_is_authenticated_before_the_key_is_looked_at() {
    let payments = Payments::start(0).await;
    assert_eq!(payments.send(Method::POST, "of-nobody", &[], CHARGE).await.status.as_u16(), 401);
    let without_key = payments.send(Method::POST, ALICE, &[], CHARGE).await;
    assert_eq!((without_key.status.as_u16(), &without_key.json()["code"]), (400, &"key_missing".into()));
}

#[tokio::test]
async fn a_page_of_another_origin_may_send_a_key_and_read_every_response() {
    let payments = Payments::start(0).await;
    let preflight = [
        ("origin", "https://shop.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,content-type,idempotency-key"),
    ];
    let allowed = payments.send(Method::OPTIONS, "none", &preflight, "").await;
    assert_eq!(allowed.header("access-control-allow-origin"), Some("*"));
    assert!(allowed.header("access-control-allow-headers").unwrap().contains("idempotency-key"));

    for (key, body, status) in [("k", CHARGE, 201), ("k", CHARGE, 201), ("k", "{}", 422), ("", CHARGE, 400)] {
        let headers = [("origin", "https://shop.example"), ("idempotency-key", key)];
        let answer = payments.send(Method::POST, ALICE, &headers, body).await;
        assert_eq!((answer.status.as_u16(), answer.header("access-control-allow-origin")), (status, Some("*")));
        assert_eq!(
            answer.header("access-control-expose-headers"),
            Some("idempotency-replayed,original-request,idempotency-unprotected,retry-after")
        );
    }
}

#[tokio::test]
async fn an_unprotected_charge_has_the_reference_of_a_protected_one() {
    let protected = Payments::start(0).await.charge(ALICE, "k-1", CHARGE).await;
    assert_eq!((protected.status.as_u16(), protected.header("idempotency-unprotected")), (201, None));
    let disabled = [("LAMBDA_ONCE_DISABLED", "1")];
    let unreachable = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let unreachable = format!("http://{unreachable}");
    let failing_open = [
        ("FAIL_OPEN", "1"),
        ("IDEMPOTENCY_TABLE", "idempotency"),
        ("AWS_ENDPOINT_URL_DYNAMODB", &unreachable),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "local"),
        ("AWS_SECRET_ACCESS_KEY", "local"),
    ];
    for (environment, mark) in [(&disabled[..], None), (&failing_open[..], Some("true"))] {
        let payments = Payments::start_with(environment).await;
        // Concurrently, because each waits for the store.
        let charges = [(ALICE, "k-1"), (ALICE, "\"k-1\""), (ALICE, "k-2"), (BOB, "k-1")];
        let charges = join_all(charges.map(|(token, key)| payments.charge(token, key, CHARGE))).await;
        let is_same = charges.iter().map(|charge| {
            assert_eq!((charge.status.as_u16(), charge.header("idempotency-unprotected")), (201, mark), "{charge:?}");
            charge.json()["reference"] == protected.json()["reference"]
        });
        assert_eq!(is_same.collect::<Vec<_>>(), [true, true, false, false]);
        // A retry of it would not be recognized.
        assert_eq!(payments.send(Method::POST, ALICE, &[], CHARGE).await.status, 400);
        assert_eq!(payments.charge(ALICE, "\"\"", CHARGE).await.status, 400);
        assert_eq!(payments.charges(ALICE).await.len(), 3);
    }
}

#[tokio::test]
async fn a_key_has_the_same_reference_with_and_without_quotes() {
    let payments = Payments::start_with(&[("LAMBDA_ONCE_DISABLED", "1")]).await;
    for (bare, quoted) in [("k-1", r#""k-1""#), (r"k\1", r#""k\\1""#), (r#"k"1"#, r#""k\"1""#)] {
        let charges = join_all([bare, quoted].map(|key| payments.charge(ALICE, key, CHARGE))).await;
        assert_eq!(charges[0].status, 201, "{bare}");
        assert_eq!(charges[0].json()["reference"], charges[1].json()["reference"], "{bare}");
    }
}

#[tokio::test]
async fn where_keys_are_optional_each_charge_without_one_is_separate() {
    let payments = Payments::start_with(&[("KEY_OPTIONAL", "1")]).await;
    let first = payments.send(Method::POST, ALICE, &[], CHARGE).await;
    let second = payments.send(Method::POST, ALICE, &[], CHARGE).await;
    assert_eq!((first.status.as_u16(), second.status.as_u16()), (201, 201));
    assert_ne!(first.json()["reference"], second.json()["reference"]);
    for _ in 0..2 {
        assert_eq!(payments.charge(ALICE, "k-1", CHARGE).await.status, 201);
    }
    assert_eq!(payments.charges(ALICE).await.len(), 3);
}

#[tokio::test]
async fn a_rejected_charge_may_be_corrected_under_its_key() {
    let payments = Payments::start(0).await;
    assert_eq!(payments.charge(ALICE, "k-1", "{}").await.status, 422);
    assert_eq!(payments.charge(ALICE, "k-1", CHARGE).await.status, 201);
    assert_eq!(payments.charges(ALICE).await.len(), 1);
}

#[tokio::test]
async fn a_charge_continues_without_its_client_and_the_retry_gets_its_response() {
    let mut payments = Payments::start(1_500).await;
    send_and_disconnect(&mut payments, "k-1").await;
    let client = client(&[&payments.url, "1", "1999", "k-1"], &[]).await;
    assert!(client.status.success(), "{}", printed(&client));
    assert!(printed(&client).contains("in_progress"), "{}", printed(&client));
    assert!(printed(&client).contains("replay: 201"), "{}", printed(&client));
    assert_eq!(payments.charges(ALICE).await.len(), 1);
}

#[tokio::test]
async fn a_client_that_waits_for_less_time_than_a_charge_takes_makes_one() {
    let payments = Payments::start(700).await;
    let client = client(&[&payments.url], &[("TRY_MS", "200")]).await;
    assert!(client.status.success(), "{}", printed(&client));
    assert!(printed(&client).contains("no answer within 200 ms"), "{}", printed(&client));
    assert!(printed(&client).contains("replay: 201"), "{}", printed(&client));
    assert_eq!(payments.charges(ALICE).await.len(), 1);
}

#[tokio::test]
async fn at_shutdown_a_charge_without_a_client_is_brought_to_its_end() {
    let mut payments = Payments::start(1_500).await;
    send_and_disconnect(&mut payments, "k-1").await;
    payments.terminate();
    let until_drained = payments.logged("waiting for charges without a client").await;
    assert!(until_drained.contains("charges=1"), "{until_drained}");
    assert!(!until_drained.contains("a charge is made"), "{until_drained}");
    let (code, rest) = payments.ended().await;
    assert!(rest.contains("a charge is made"), "{rest}");
    assert_eq!(code, Some(0), "{rest}");
}
