resource "aws_dynamodb_table" "idempotency" {
  name                        = var.name
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = "id"
  deletion_protection_enabled = var.deletion_protection
  tags                        = var.tags

  attribute {
    name = "id"
    type = "S"
  }

  # Frees storage only. DynamoDB deletes days late, so the library compares the time itself.
  ttl {
    attribute_name = "expiration"
    enabled        = true
  }

  # No point-in-time recovery: an older copy has forgotten operations that were done since, and would run them again.
}

# Exactly the permissions that a function needs. A function without batches needs UpdateItem, DeleteItem and GetItem only.
resource "aws_iam_policy" "function" {
  name_prefix = "${var.name}-function-"
  description = "Claims and settles operations in the table ${var.name}."
  policy      = templatefile("${path.module}/../policies/function.json", { table_arn = aws_dynamodb_table.idempotency.arn })
  tags        = var.tags
}
