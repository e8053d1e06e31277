//! End-to-end tests that run the real txos binary from outside.
