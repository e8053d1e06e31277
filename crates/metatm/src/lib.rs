//! A deterministic multi-processor simulator with hardware transactional memory.
