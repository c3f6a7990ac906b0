"""The script that finds or installs PostgreSQL, on a machine whose programs only take notes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "postgres.sh"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine with bash, apt-get and sed, and no PostgreSQL."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "versions").mkdir()
    bash = shutil.which("bash")
    assert bash
    (tmp_path / "bin" / "bash").symlink_to(bash)
    for name in ("apt-get", "sed"):
        program(tmp_path, name, f'echo "{name} $*" >>{tmp_path}/notes')
    return tmp_path


def program(machine: Path, name: str, text: str) -> None:
    path = machine / "bin" / name
    path.write_text(f"#!{machine}/bin/bash\n{text}\n")
    path.chmod(0o755)


def run(machine: Path, *, uid: int, **settings: str) -> tuple[int, str, list[str]]:
    """Run the script as a user: its status, its complaints and the notes that were taken."""
    program(machine, "id", f"echo {uid}")
    done = subprocess.run(
        ["bash", str(SCRIPT), str(machine / "versions")],
        env={"PATH": str(machine / "bin"), **settings},
        executable=str(machine / "bin" / "bash"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    notes = machine / "notes"
    return done.returncode, done.stderr, notes.read_text().splitlines() if notes.exists() else []


@pytest.mark.parametrize("place", ["bin", "versions/15/bin"])
def test_what_is_there_is_not_installed(machine: Path, place: str) -> None:
    (machine / place).mkdir(parents=True, exist_ok=True)
    (machine / place / "initdb").touch(mode=0o755)
    assert run(machine, uid=0, CI="true") == (0, "", [])


def test_root_installs_the_package_without_a_server_that_runs_all_the_time(machine: Path) -> None:
    initdb = machine / "versions" / "15" / "bin" / "initdb"
    mkdir = shutil.which("mkdir")
    program(
        machine,
        "apt-get",
        f'echo "apt-get $*" >>{machine}/notes\n'
        f'[ "${{*: -1}}" = postgresql ] && {mkdir} -p {initdb.parent} && : >{initdb}\n:',
    )
    status, complaints, notes = run(machine, uid=0, CI="true")
    assert (status, complaints) == (0, "")
    order = [note.split()[-1] for note in notes]
    assert order == [
        "-qq",
        "postgresql-common",
        "/etc/postgresql-common/createcluster.conf",
        "postgresql",
    ]
    assert "create_main_cluster = false" in notes[2]


@pytest.mark.parametrize("uid", [0, 1000])
@pytest.mark.parametrize(("ci", "status"), [({}, 0), ({"CI": "true"}, 1)])
def test_where_it_can_not_be_had_only_ci_insists(
    machine: Path, uid: int, ci: dict[str, str], status: int
) -> None:
    answer, complaints, notes = run(machine, uid=uid, **ci)
    assert answer == status
    assert "sudo apt-get install postgresql" in complaints
    assert bool(notes) == (uid == 0)


def test_the_setting_is_found_in_debians_file(tmp_path: Path) -> None:
    # As the package has it.
    settings = tmp_path / "createcluster.conf"
    settings.write_text(
        '# Create a "main" cluster\n#create_main_cluster = true\n\n#start_conf = \n'
    )
    [command] = [line for line in SCRIPT.read_text().splitlines() if "sed -i" in line]
    command = command.strip().removesuffix(" &&")
    subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, "settings": str(settings)},
        check=True,
        timeout=60,
    )
    expected = '# Create a "main" cluster\ncreate_main_cluster = false\n\n#start_conf = \n'
    assert settings.read_text() == expected
