//! Flags of `sys_xbegin`. The first five have the numbers of TxOS (table 2.1).

/// Durable, with rollback of the program, executed again after a lost conflict.
pub const TX_DEFAULTS: i32 = 0;
/// The changes need not survive a power cut when `sys_xend` returns.
pub const TX_NONDURABLE: i32 = 1;
/// The program's own state is not rolled back: `sys_xend` says `-EAGAIN`, and the program loops.
pub const TX_NO_USER_ROLLBACK: i32 = 2;
/// A lost conflict is not tried again: `sys_xend` says `-ECANCELED`.
pub const TX_NO_AUTO_RETRY: i32 = 4;
/// A call that cannot be isolated fails with `ENOTXSUPPORT`, and the transaction goes on; without this it
/// is given up.
pub const TX_ERROR_UNSUPPORTED: i32 = 8;
/// What cannot be isolated is done all the same.
pub const TX_LIVE_DANGEROUSLY: i32 = 16;
/// Signals from outside wait until the transaction has ended.
pub const TX_DEFER_SIGNALS: i32 = 32;

/// The error number of what a transaction does not support.
pub const ENOTXSUPPORT: i32 = 134;

/// All flags that exist.
pub(crate) const KNOWN: i32 = TX_NONDURABLE
    | TX_NO_USER_ROLLBACK
    | TX_NO_AUTO_RETRY
    | TX_ERROR_UNSUPPORTED
    | TX_LIVE_DANGEROUSLY
    | TX_DEFER_SIGNALS;
