//! Optimistic lock-free lists that compose.
