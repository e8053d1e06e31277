//! State directory, delta, staging, journal, apply and recovery.
