//! The tests of the functions in `bin/`, in one program, except those of `traces.rs`.

#![cfg(test)]
#![allow(dead_code, reason = "nothing runs their `main`")]

#[path = "bin/axum-layers.rs"]
mod axum_layers;
#[path = "bin/axum-payments.rs"]
mod axum_payments;
#[path = "bin/duplicates-in-cloudwatch.rs"]
mod duplicates_in_cloudwatch;
#[path = "bin/encrypted-results.rs"]
mod encrypted_results;
#[path = "bin/eventbridge-in-sqs.rs"]
mod eventbridge_in_sqs;
#[path = "bin/handler-test.rs"]
mod handler_test;
#[path = "bin/http-call.rs"]
mod http_call;
#[path = "bin/jwt-authorizer.rs"]
mod jwt_authorizer;
#[path = "bin/kinesis-in-order.rs"]
mod kinesis_in_order;
#[path = "bin/own-store.rs"]
mod own_store;
#[path = "bin/payment-errors.rs"]
mod payment_errors;
#[path = "bin/postgres-queue.rs"]
mod postgres_queue;
#[path = "bin/s3-in-sqs.rs"]
mod s3_in_sqs;
#[path = "bin/sns-in-sqs.rs"]
mod sns_in_sqs;
#[path = "bin/sqs-poller.rs"]
mod sqs_poller;
#[path = "bin/step-functions-task.rs"]
mod step_functions_task;
