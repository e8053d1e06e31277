"""Each test gets a directory of its own; all of them share a state directory that is removed in the end."""

import os
import shutil
import tempfile

import pytest

_STATE = tempfile.mkdtemp(prefix="txos-python-")
os.environ["TXOS_STATE"] = os.path.join(_STATE, "state")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """The test's own directory, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pytest_sessionfinish():
    shutil.rmtree(_STATE, ignore_errors=True)
