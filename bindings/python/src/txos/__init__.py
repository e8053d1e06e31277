"""Small ACID transactions over plain files.

    import txos

    @txos.transactional
    def transfer(tx: txos.Transaction, amount: int) -> None:
        alice = int(tx.read_text("accounts/alice"))
        bob = int(tx.read_text("accounts/bob"))
        tx.write_text("accounts/alice", str(alice - amount))
        tx.write_text("accounts/bob", str(bob + amount))

    transfer(10)  # both files change, or none, also in a power cut

What a transaction reads is remembered, what it writes stays in memory until it commits; it commits only
if everything that it has read is still the same. ``with txos.transaction() as tx:`` commits at the end of
the block, aborts if the block raises, and raises :class:`Conflict` if it has lost: a block cannot be run
again by itself. :func:`run`, :func:`transactional` and :func:`attempts` run again.
"""

from ._errors import Conflict, RetriesExhausted, TxosError
from ._transaction import Stat, Transaction, attempts, run, transaction, transactional

__all__ = [
    "Conflict",
    "RetriesExhausted",
    "Stat",
    "Transaction",
    "TxosError",
    "attempts",
    "run",
    "transaction",
    "transactional",
]
