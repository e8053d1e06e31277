"""Moves an amount between two accounts, each a file: both change, or none.

Try it from several shells at once, and kill some of them: the sum stays what it was.
"""

import sys
from pathlib import Path

import txos


@txos.transactional
def move(tx: txos.Transaction, source: Path, target: Path, amount: int) -> int:
    left = int(tx.read_text(source)) - amount
    if left < 0:
        raise ValueError(f"{source} holds too little")
    tx.write_text(source, f"{left}\n")
    tx.write_text(target, f"{int(tx.read_text(target)) + amount}\n")
    return left


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: move_money.py FROM TO AMOUNT")
    print(move(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])), "left")
