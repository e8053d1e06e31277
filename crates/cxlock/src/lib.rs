//! Locks that cooperate with transactional memory.
