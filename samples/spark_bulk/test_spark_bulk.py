"""The sample does what its page says, on few rows."""

import subprocess
import sys
from pathlib import Path

MAIN = Path(__file__).with_name("main.py")


def test_reminders_of_a_file_wait_and_are_accounted_for(azurite_connection, tmp_path, monkeypatch):
    monkeypatch.setenv("POSTDATE_CONNECTION", azurite_connection)
    folder = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, MAIN, "--rows", "3000", "--folder", folder],
        capture_output=True,
        check=False,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "scheduled 2,997 of 3,000 rows" in done.stdout
    assert "refused 3" in done.stdout
    assert "audit: passed; waiting 2,997" in done.stdout
    assert "the same once more: the same 2,997 messages wait" in done.stdout
    assert "forecast: the worst minute is 2040-01-" in done.stdout
    assert (folder / "forecast.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (folder / "audit.html").read_text(encoding="utf-8")
    assert list((folder / "refused").glob("*.parquet"))
