output "table_name" {
  description = "Value for the function's environment variable IDEMPOTENCY_TABLE."
  value       = aws_dynamodb_table.idempotency.name
}

output "table_arn" {
  description = "ARN of the table."
  value       = aws_dynamodb_table.idempotency.arn
}

output "function_policy_arn" {
  description = "ARN of the policy to attach to the functions' roles."
  value       = aws_iam_policy.function.arn
}
