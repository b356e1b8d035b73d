variable "name" {
  description = "Name of the table. Functions find it in the environment variable IDEMPOTENCY_TABLE."
  type        = string
  default     = "idempotency"
}

variable "deletion_protection" {
  description = "Whether the table is protected against deletion. A deleted table forgets every operation, so redeliveries run again."
  type        = bool
  default     = true
}

variable "tags" {
  description = "Tags of the table and the policy."
  type        = map(string)
  default     = {}
}
