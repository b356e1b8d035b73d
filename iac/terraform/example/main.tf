# A queue, its dead-letter queue and a function that cargo lambda has built:
#
#   cargo lambda build --release --arm64 --output-format zip
#   terraform init && terraform apply

provider "aws" {}

module "idempotency" {
  source = "../"
  name   = "orders-idempotency"
}

locals {
  # Seconds. The queue's visibility timeout follows from it.
  timeout = 30
}

resource "aws_sqs_queue" "orders" {
  name                       = "orders"
  visibility_timeout_seconds = 6 * local.timeout
  message_retention_seconds  = 345600

  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.dead_letters.arn
    # A throttled poll counts as a receive too.
    maxReceiveCount = 5
  })
}

resource "aws_sqs_queue" "dead_letters" {
  name = "orders-dead-letters"
  # The age counts from the first send, so this must exceed the retention of the source queue.
  message_retention_seconds = 1209600
}

resource "aws_lambda_function" "orders" {
  function_name    = "orders"
  role             = aws_iam_role.orders.arn
  filename         = "target/lambda/orders/bootstrap.zip"
  source_code_hash = filebase64sha256("target/lambda/orders/bootstrap.zip")
  runtime          = "provided.al2023"
  handler          = "bootstrap"
  architectures    = ["arm64"]
  memory_size      = 256
  timeout          = local.timeout

  environment {
    variables = {
      IDEMPOTENCY_TABLE = module.idempotency.table_name
    }
  }
}

resource "aws_lambda_event_source_mapping" "orders" {
  event_source_arn = aws_sqs_queue.orders.arn
  function_name    = aws_lambda_function.orders.arn
  batch_size       = 10
  # Without this line Lambda ignores the list of failed messages and deletes them with the rest.
  function_response_types = ["ReportBatchItemFailures"]

  scaling_config {
    maximum_concurrency = 50
  }
}

resource "aws_iam_role" "orders" {
  name_prefix = "orders-"

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "lambda.amazonaws.com" }
    }]
  })
}

resource "aws_iam_role_policy_attachment" "claims" {
  role       = aws_iam_role.orders.name
  policy_arn = module.idempotency.function_policy_arn
}

resource "aws_iam_role_policy_attachment" "queue_and_logs" {
  role       = aws_iam_role.orders.name
  policy_arn = "arn:aws:iam::aws:policy/service-role/AWSLambdaSQSQueueExecutionRole"
}
