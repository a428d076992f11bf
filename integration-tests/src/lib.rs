//! End-to-end tests with real processes and real clients.
