//! The client library: volumes, buckets, keys and their data path.
