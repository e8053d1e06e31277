"""Transactions from Python, held against plain calls where that says more."""

import os
import stat
import threading

import pytest

import txos


def test_changes_come_together_at_the_end(place):
    (place / "a").write_text("1")
    with txos.transaction() as tx:
        tx.write_text("a", "2")
        tx.write_text("b", "new")
        assert (tx.read_text("a"), tx.read_text("b")) == ("2", "new")
        assert (place / "a").read_text() == "1"
        assert not (place / "b").exists()
    assert (place / "a").read_text() == "2"
    assert (place / "b").read_text() == "new"


def test_an_exception_aborts(place):
    with pytest.raises(ZeroDivisionError):
        with txos.transaction() as tx:
            tx.write_text("a", "never")
            raise ZeroDivisionError
    assert not (place / "a").exists()


def test_errors_are_those_of_the_plain_calls(place):
    with txos.transaction() as tx:
        with pytest.raises(FileNotFoundError) as caught:
            tx.read("absent")
        assert caught.value.filename == "absent"
        tx.mkdir("d")
        with pytest.raises(FileExistsError):
            tx.mkdir("d")
        with pytest.raises(IsADirectoryError):
            tx.remove("d")
        with pytest.raises(ValueError):
            tx.read("with\0nul")
    assert (place / "d").is_dir()


def test_a_conflict_is_told_and_nothing_is_done(place):
    (place / "a").write_text("1")
    with pytest.raises(txos.Conflict) as caught:
        with txos.transaction() as tx:
            tx.write("copy", tx.read("a"))
            (place / "a").write_text("changed")
    assert "a" in str(caught.value)
    assert not (place / "copy").exists()


def test_the_decorator_runs_again_until_it_has_won(place):
    (place / "counter").write_text("0")
    threads, each = 3, 10

    @txos.transactional(durable=False, retries=100_000)
    def count(tx: txos.Transaction, by: int) -> int:
        value = int(tx.read_text("counter")) + by
        tx.write_text("counter", str(value))
        return value

    def work():
        for _ in range(each):
            count(1)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert (place / "counter").read_text() == str(threads * each)


def test_losses_without_end_come_to_an_end(place):
    (place / "a").write_text("0")
    runs = []

    def body(tx):
        tx.read("a")
        runs.append(None)
        (place / "a").write_text(str(len(runs)))
        tx.write_text("b", "")

    with pytest.raises(txos.RetriesExhausted):
        txos.run(body, retries=2)
    assert len(runs) == 3
    assert not (place / "b").exists()


def test_attempts_run_a_block_again(place):
    (place / "a").write_text("0")
    runs = 0
    for attempt in txos.attempts(retries=5):
        with attempt as tx:
            runs += 1
            value = tx.read_text("a")
            if runs == 1:
                (place / "a").write_text("7")
            tx.write_text("b", value)
    assert runs == 2
    assert (place / "b").read_text() == "7"


def test_every_call_does_what_its_plain_one_does(place):
    (place / "f").write_bytes(b"0123456789")
    (place / "gone").write_text("x")
    with txos.transaction(durable=False) as tx:
        assert tx.read_range("f", 2, 3) == b"234"
        tx.write_range("f", 8, b"ab")
        tx.append("f", b"cd")
        tx.create("made", 0o640)
        tx.mkdir("d", 0o750)
        tx.rename("made", "d/moved")
        tx.link("f", "second")
        tx.symlink("f", "link")
        assert tx.readlink("link") == "f"
        assert tx.exists("link") and not tx.exists("made")
        tx.remove("gone")
        tx.chmod("f", 0o600)
        tx.utime("f", mtime_ns=1_000_000_005)
        tx.setxattr("f", "user.mark", b"\x00\xff")
        assert tx.getxattr("f", "user.mark") == b"\x00\xff"
        assert tx.list(".") == ["d", "f", "link", "second"]
        shown = tx.stat("f")
        assert (shown.size, shown.nlink, shown.mtime_ns) == (12, 2, 1_000_000_005)
        assert tx.stat("link", follow_symlinks=False).is_symlink()
    assert (place / "f").read_bytes() == b"01234567abcd"
    assert os.path.samefile(place / "f", place / "second")
    plain = (place / "f").stat()
    assert stat.S_IMODE(plain.st_mode) == 0o600
    assert plain.st_mtime_ns == 1_000_000_005
    assert os.getxattr(place / "f", "user.mark") == b"\x00\xff"
    assert (place / "d" / "moved").exists()
    assert not (place / "gone").exists()


def test_names_that_are_no_text_come_through(place):
    name = b"\xff\n\x01"
    with txos.transaction() as tx:
        tx.write(name, b"x")
        assert [os.fsencode(entry) for entry in tx.list(".")] == [name]
    assert os.listdir(os.fsencode(place)) == [name]


def test_an_ended_transaction_says_so(place):
    tx = txos.transaction()
    tx.write_text("a", "x")
    tx.commit()
    with pytest.raises(ValueError):
        tx.read("a")
    tx.abort()
