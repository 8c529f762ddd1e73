"""Shell completion, made from the tables of commands and options, in the shells themselves."""
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import time

import pytest
from conftest import FARTHING, PATIENCE_S, environment

SHELLS = ["bash", "zsh", "fish"]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("completion")
    names = {"bash": "farthing.bash", "zsh": "_farthing", "fish": "farthing.fish"}
    for shell, name in names.items():
        done = subprocess.run([FARTHING, "completion", shell], capture_output=True, text=True, check=True)
        (folder / name).write_text(done.stdout)
    return {shell: folder / name for shell, name in names.items()}


@pytest.fixture
def place(tmp_path):
    """A folder with something of every kind to complete."""
    (tmp_path / "job.yaml").write_text("")
    (tmp_path / "a photo.png").write_text("")
    (tmp_path / "photos").mkdir()
    (tmp_path / "runs" / "first").mkdir(parents=True)
    (tmp_path / "runs" / "first" / "run.json").write_text("{}")
    return tmp_path


def need(shell):
    if not shutil.which(shell):
        pytest.skip(f"there is no {shell} here; scripts/install-dependencies --tests installs it")


def complete_bash(script, place, line):
    # What readline does: words, the place of the cursor, and the function that `complete` names.
    words = line.split(" ")
    setup = f"source {script}; compopt() {{ :; }}; cd {place}; COMP_WORDS=({' '.join(repr(w) for w in words)});"
    call = f"COMP_CWORD={len(words) - 1}; complete -p farthing | grep -q _farthing && _farthing; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "--norc", "-c", setup + call], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stderr == "", done.stderr
    return {word for word in done.stdout.splitlines() if word}


def complete_fish(script, place, line):
    done = subprocess.run(["fish", "--no-config", "-c", f"source {script}; complete -C {line!r}"], cwd=place,
                          capture_output=True, text=True, timeout=PATIENCE_S, env=environment(HOME=str(place)))
    assert done.stderr == "", done.stderr
    return {word.split("\t")[0].rstrip("/") for word in done.stdout.splitlines()}


def read_until(terminal, mark, seconds=PATIENCE_S):
    text, deadline = b"", time.monotonic() + seconds
    while mark not in text:
        left = deadline - time.monotonic()
        assert left > 0, f"zsh did not print {mark!r}: {text[-2000:]!r}"
        if select.select([terminal], [], [], left)[0]:
            text += os.read(terminal, 65536)
    return text


ZSHRC = """
PS1=
fpath=({folder} $fpath)
autoload -U compinit
compinit -u -D
unsetopt zle_bracketed_paste
compadd() {{
    local -a found
    builtin compadd -O found "$@"
    print -rl -- $found >> {place}/matches.txt
    builtin compadd "$@"
}}
zle-line-init() {{ print -n "is "; print ready }}
zle -N zle-line-init
list-all() {{ zle list-choices; print -n "all "; print listed }}
zle -N list-all
bindkey '^X' list-all
"""


def complete_zsh(script, place, line):
    """zsh completes only at a terminal. Matches are caught where completion functions hand them over."""
    (place / ".zshrc").write_text(ZSHRC.format(folder=script.parent, place=place))
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(place)
        os.execvpe("zsh", ["zsh", "-d", "-i"], environment(HOME=str(place), ZDOTDIR=str(place)))
    try:
        read_until(terminal, b"is ready")
        os.write(terminal, line.encode() + b"\x18")
        read_until(terminal, b"all listed")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)
    caught = place / "matches.txt"
    words = caught.read_text().splitlines() if caught.exists() else []
    return {word.replace("\\", "").rstrip("/=") for word in words if word}


COMPLETE = {"bash": complete_bash, "zsh": complete_zsh, "fish": complete_fish}


@pytest.fixture(params=SHELLS)
def offered(request, scripts, place):
    need(request.param)
    return lambda line: COMPLETE[request.param](scripts[request.param], place, line)


def test_commands(offered):
    words = offered("farthing ")
    assert {"train", "evaluate", "serve", "store", "completion"} <= words
    assert "hogwild-worker" not in words


def test_flags_of_the_right_command(offered):
    assert {"--optimizer", "--nesterov", "--no-nesterov"} <= offered("farthing train --")


def test_no_flags_of_other_commands(offered):
    words = offered("farthing evaluate --")
    assert "--per-class" in words and "--optimizer" not in words


def test_choices_come_from_the_tables(offered):
    assert offered("farthing train --optimizer ") >= {"sgd", "adamw"}


def test_words_and_folders_together(offered):
    words = offered("farthing train --data ")
    assert {"digits", "shapes", "photos"} <= words and "job.yaml" not in words


def test_models(offered):
    assert offered("farthing predict --model resnet18") == {"resnet18", "resnet18-small"}


def test_standby_takes_what_train_takes(offered):
    assert "--optimizer" in offered("farthing standby --opt")


def test_strategies(offered):
    assert offered("farthing train --strategy ") >= {"single", "hogwild", "parameter-server"}


def test_a_folder_where_one_is_taken(offered):
    words = offered("farthing train --runs ")
    assert {"photos", "runs"} <= words and "job.yaml" not in words


def test_files_and_words_that_are_no_flags(offered):
    assert {"job.yaml", "a photo.png", "photos"} <= offered("farthing train ")


def test_actions_of_store(offered):
    assert offered("farthing store ") == {"ls", "cat", "cp", "rm", "presign"}


def test_files_after_an_action(offered):
    assert "job.yaml" in offered("farthing store cp ")


def test_services(offered):
    assert offered("farthing serve ") == {"parameters", "batches", "functions"}


def test_workers(offered):
    assert offered("farthing worker ") == {"prefetch", "openwhisk", "lambda"}


def test_flags_of_a_service(offered):
    assert offered("farthing serve parameters --durab") >= {"--durability"}


def test_values_of_a_service(offered):
    assert offered("farthing serve parameters --durability ") == {"checkpoint", "kill", "power"}


def test_runs_by_name(offered):
    assert "first" in offered("farthing report ")


def test_a_job_after_two_dashes(offered):
    assert "adamw" in offered("farthing rehearse --every 30s -- train --optimizer ")


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_flag_is_there(farthing, scripts, shell):
    """The scripts are made from the tables, so each flag that a command's help lists is in them."""
    text = scripts[shell].read_text()
    dashes = "-l " if shell == "fish" else "--"
    for command in re.findall(r"^  (\w+) +\w", farthing("--help").out, re.M):
        assert re.search(rf"\b{command}\b", text), command
        for flag in re.findall(r"^  --(?:\[no-\])?([\w-]+)", farthing(command, "--help").out, re.M):
            assert re.search(rf"{dashes}{flag}\b", text), f"{command} --{flag}"
    assert re.search(rf"{dashes}learning-rate\b", text)  # an alias


def test_bash_completes_after_an_equals_sign(scripts, place):
    need("bash")
    assert complete_bash(scripts["bash"], place, "farthing train --optimizer = ad") == {"adamw"}


def test_an_unknown_shell(farthing):
    done = farthing("completion", "fisch", code=2)
    assert "bash, zsh, fish" in done.err and "did you mean 'fish'?" in done.err
    assert farthing("completion", code=2).out == ""
