//! Key-space manager: volumes, buckets, keys, uploads, secrets and block grants.
