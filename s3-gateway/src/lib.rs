//! S3-compatible HTTP gateway.
