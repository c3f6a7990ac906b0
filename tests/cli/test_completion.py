"""Shell completion, and what the command imports."""

from __future__ import annotations

import subprocess
import sys

import pytest

from airflow_delta.cli.completion import COMPLETE_VARIABLE
from airflow_delta.cli.group import SUBCOMMANDS
from airflow_delta.cli.main import main


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"{COMPLETE_VARIABLE}={shell}_complete" in script
    assert "\n" in script


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("airflow-delta ch", {"plain,checkpoint"}),
        ("airflow-delta vacuum /t --ret", {"plain,--retention-hours"}),
        ("airflow-delta alter drop-com", {"plain,drop-comment"}),
        ("airflow-delta checkpoint /t --policy ", {"plain,classic", "plain,v2"}),
        ("airflow-delta describe ", {"dir,"}),
    ],
)  # fmt: skip
def test_a_line_is_completed(
    line: str,
    expected: set[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(COMPLETE_VARIABLE, "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    main([])
    assert set(capsys.readouterr().out.splitlines()) == expected


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_each_subcommand_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([name, "--help"])
    words = capsys.readouterr().out
    assert words.startswith(f"Usage: airflow-delta {name} ")
    assert "--help" in words


def test_help_is_light() -> None:
    code = (
        "import sys; from airflow_delta.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'rich', 'pyarrow', 'numpy', 'airflow', 'sqlalchemy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
