# SPDX-License-Identifier: Apache-2.0
"""The host's side with a stand-in for QEMU, then real guests of Debian 12."""

import dataclasses
import io
import json
import os
import pty
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from netagent import __version__
from tests.conftest import VM, require
from tests.rdma.apart import PROBES
from tests.waiting import wait_until
from vagrant.vm import DISTRIBUTIONS, distribution, ensure, guest
from vagrant.vm.errors import VmError
from vagrant.vm.guest import NEVER_UP, TIMED_OUT, Options, boot, shell
from vagrant.vm.images import TREE

QUICK = Options(timeout_s=90, memory_mib=1024)


# --- without QEMU --------------------------------------------------------------------------------


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    """Run a shell script in QEMU's place, in the job's folder; nothing may be left of the run."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(guest, "_check_tools", lambda: None)

    def instead(script: str) -> None:
        monkeypatch.setattr(
            guest,
            "command_line",
            lambda _image, machine: ["sh", "-c", f"cd {machine.job}; {script}"],
        )

    yield instead
    assert list(tmp_path.iterdir()) == []


def test_output_is_shown_and_kept_and_the_exit_code_comes_back(image, stand_in):
    stand_in(
        "echo 6.1 >up; printf a >stdout; printf b >stderr; echo 7 >part; mv part exit; sleep 60"
    )
    out, err = io.BytesIO(), io.BytesIO()
    result = boot(image, ["true"], Options(timeout_s=30), stdout=out, stderr=err)
    assert (result.exit_code, result.ended, result.timed_out) == (7, True, False)
    assert (out.getvalue(), err.getvalue()) == (b"a", b"b")
    assert (result.stdout, result.stderr, result.kernel) == ("a", "b", "6.1")


def test_a_guest_that_is_never_up_has_no_exit_code(image, stand_in):
    stand_in("echo no kernel >&2; exit 1")
    result = boot(image, ["true"], Options(timeout_s=30))
    assert (result.exit_code, result.came_up, result.died) == (NEVER_UP, False, False)
    assert result.console == "no kernel\n"


def test_a_guest_that_dies_is_told_from_a_command_that_fails(image, stand_in):
    stand_in("echo 6.1 >up; echo half >stdout; exec sleep 0.2")
    result = boot(image, ["true"], Options(timeout_s=30))
    assert (result.exit_code, result.came_up, result.died) == (NEVER_UP, True, True)
    assert result.stdout == "half\n"


@pytest.mark.parametrize(("script", "code"), [("echo 6.1 >up; ", TIMED_OUT), ("", NEVER_UP)])
def test_a_guest_is_killed_when_its_time_is_over(image, stand_in, script, code):
    stand_in(f"{script}exec sleep 60")
    # Long enough to come up on a busy machine, where it does.
    result = boot(image, ["true"], Options(timeout_s=2.0 if script else 0.2))
    assert (result.exit_code, result.timed_out) == (code, True)
    assert result.total_s < 30


def test_the_job_says_what_to_run_where(image, stand_in):
    stand_in("echo 6.1 >up; cat tree venv hostname job.sh >stdout; echo 0 >part; mv part exit")
    own = dataclasses.replace(image, own_venv=True)
    options = Options(timeout_s=30, environment={"A": "b c"})
    lines = boot(own, ["echo", "$HOME", ";"], options).stdout.splitlines()
    assert lines[:4] == [str(TREE), "image", "debian-12", f"cd {TREE}"]
    assert lines[-2:] == ["export 'A=b c'", "exec echo '$HOME' ';'"]


def test_two_guests_on_a_cable_have_two_names(image, stand_in):
    stand_in("echo 6.1 >up; cat hostname >stdout; echo 0 >part; mv part exit")
    options = Options(timeout_s=30, link="wire", index=1)
    assert boot(image, ["true"], options).stdout == "debian-12-1\n"


def test_a_missing_qemu_is_named_with_its_package(image, monkeypatch):
    monkeypatch.setattr(guest.shutil, "which", lambda tool: None)
    with pytest.raises(VmError) as caught:
        boot(image, ["true"])
    assert caught.value.remedy == "apt-get install qemu-system-x86"


def test_no_command_is_refused(image):
    with pytest.raises(VmError):
        boot(image, [])


SORTS = """
import numpy as np
for kind in (np.int64, np.uint32, np.float64):
    values = (np.random.default_rng(0).random(100_000) * 1e6).astype(kind)
    order = np.argsort(values, kind="quicksort")
    assert (values[order] == sorted(values.tolist())).all(), kind
"""


# --- guests --------------------------------------------------------------------------------------


@pytest.mark.vm
@pytest.mark.again
def test_numpy_sorts_as_it_does_elsewhere(debian_12):
    result = boot(debian_12, [str(TREE / ".venv/bin/python"), "-c", SORTS], QUICK)
    assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.vm
def test_a_command_runs_as_root_in_the_tree_and_its_exit_code_comes_back(debian_12):
    script = 'id -u; pwd; echo "$GREETING"; uname -r; echo bad >&2; exit 7'
    options = dataclasses.replace(QUICK, environment={"GREETING": "hello, guest"})
    result = boot(debian_12, ["bash", "-c", script], options)
    assert (result.exit_code, result.stderr) == (7, "bad\n")
    assert result.stdout.splitlines() == ["0", str(TREE), "hello, guest", debian_12.kernel]
    assert result.kernel == debian_12.kernel


@pytest.mark.vm
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_guest_has_what_the_project_needs(name):
    require(VM)
    script = """
    set -e
    modprobe -a rdma_rxe ib_uverbs openvswitch vport_vxlan sch_netem
    .venv/bin/netagent --version
    .venv/bin/python -c 'import analyzer.server, bcc, pytest, pyverbs.device'
    test "$(ulimit -l)" = unlimited
    ping -c1 -W5 localhost >/dev/null
    for each in /sys/kernel/tracing /sys/kernel/debug /sys/fs/bpf /sys/fs/cgroup /tmp /run; do
      mountpoint $each
    done
    """
    result = boot(ensure(distribution(name), print), ["bash", "-c", script], QUICK)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"netagent {__version__}\n")


@pytest.mark.vm
@pytest.mark.again
def test_every_boot_is_pristine_and_results_come_back(debian_12):
    build = TREE / "build"
    build.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=build) as folder:
        script = f"test ! -e /mark && touch /mark && dd if=/dev/zero bs=1M count=8 >>{folder}/back"
        for boots in (1, 2):
            result = boot(debian_12, ["sh", "-c", script], QUICK)
            assert result.exit_code == 0
            assert Path(folder, "back").stat().st_size == boots << 23


@pytest.mark.vm
@pytest.mark.again
def test_much_output_comes_back_whole(debian_12):
    out = io.BytesIO()
    result = boot(debian_12, ["seq", "1000000"], QUICK, stdout=out)
    assert out.getvalue() == b"".join(b"%d\n" % n for n in range(1, 1_000_001))
    assert result.exit_code == 0


@pytest.mark.vm
@pytest.mark.again
def test_a_command_that_hangs_is_ended_with_what_it_had_printed(debian_12):
    command = ["bash", "-c", "echo begun; echo half >build/.half; exec sleep 600"]
    result = boot(debian_12, command, dataclasses.replace(QUICK, timeout_s=30))
    assert (result.exit_code, result.timed_out, result.stdout) == (TIMED_OUT, True, "begun\n")
    (TREE / "build" / ".half").unlink()  # what it wrote to the tree is there too


@pytest.mark.vm
@pytest.mark.again
def test_a_kernel_that_panics_shows_its_console(debian_12):
    result = boot(debian_12, ["sh", "-c", "echo c >/proc/sysrq-trigger"], QUICK)
    assert result.died
    assert "sysrq triggered crash" in result.console


@pytest.mark.vm
@pytest.mark.again
def test_two_guests_on_a_cable_reach_each_other(debian_12):
    script = """
    set -e
    dev=$(basename /sys/bus/virtio/drivers/virtio_net/virtio*/net/*)
    ip address add 192.0.2.1$0/24 dev "$dev"
    ip link set "$dev" up
    until ping -c1 -W1 192.0.2.1$((1 - $0)); do :; done
    # Neither leaves before the other is done: end 1 waits for a word that end 0 says last.
    case $0 in
    0) echo done | socat -t10 - TCP-LISTEN:7000 ;;
    1) socat -u TCP:192.0.2.10:7000,retry=200,interval=0.2 - ;;
    esac
    """

    def end(index):
        options = dataclasses.replace(QUICK, cpus=1, link="test-wire", index=index)
        return boot(debian_12, ["bash", "-c", script, str(index)], options)

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(end, (0, 1)))
    for result in results:
        assert result.exit_code == 0, result.stderr
        assert "1 received" in result.stdout
    assert results[1].stdout.endswith("done\n")


@pytest.mark.vm
@pytest.mark.parametrize(
    "number",
    [
        signal.SIGKILL,
        pytest.param(signal.SIGTERM, marks=pytest.mark.again),
        pytest.param(signal.SIGINT, marks=pytest.mark.again),
    ],
)
def test_a_signal_ends_the_guest_and_leaves_nothing(debian_12, tmp_path, number):
    # TMPDIR: what QEMU and the tool make on the way is in here, and shall be gone.
    command = [sys.executable, "-m", "vagrant.vm", "run", "debian-12", "--memory", "1024",
               "--link", "signalled", "--", "sh", "-c", "echo up; exec sleep 600"]  # fmt: skip
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, cwd=TREE, stdout=subprocess.PIPE, env=environment) as tool:
        assert tool.stdout is not None
        assert tool.stdout.readline() == b"up\n"
        (child,) = Path(f"/proc/{tool.pid}/task/{tool.pid}/children").read_text().split()
        tool.send_signal(number)
    wait_until(
        lambda: (
            not (process := Path(f"/proc/{child}")).exists()
            or "State:\tZ" in (process / "status").read_text()
        ),
        "the guest's end",
        60,
    )
    if number == signal.SIGKILL:
        assert tool.returncode == -signal.SIGKILL  # it could not tidy up; the guest is gone
    else:
        assert tool.returncode == 128 + number
        assert list(tmp_path.iterdir()) == []


@pytest.mark.vm
@pytest.mark.again
def test_a_shell_talks_on_the_terminal(debian_12):
    control, terminal = pty.openpty()
    with ThreadPoolExecutor(1) as pool:
        saved = os.dup(0), os.dup(1)
        os.dup2(terminal, 0)
        os.dup2(terminal, 1)
        try:
            code = pool.submit(shell, debian_12, QUICK)
            read_until(control, b"#")
            os.write(control, b"echo $((6 * 7)); uname -r; exit 5\n")
            printed = read_until(control, debian_12.kernel.encode())
            assert b"\r42\r" in printed
            assert code.result(60) == 5
        finally:
            for descriptor in (0, 1):
                os.dup2(saved[descriptor], descriptor)
                os.close(saved[descriptor])
            os.close(terminal)
            os.close(control)


def read_until(control: int, wanted: bytes) -> bytes:
    printed = b""
    while wanted not in printed:
        printed += os.read(control, 4096)
    return printed


@pytest.mark.vm
def test_two_machines_probe_each_other_over_rdma(debian_12):
    """Truly apart: two kernels with one Soft-RoCE device each, and a cable between them."""

    def end(index, role):
        options = dataclasses.replace(QUICK, timeout_s=300, link="roce-wire", index=index)
        command = [".venv/bin/python", "-m", "tests.rdma.apart", role]
        return boot(debian_12, command, options)

    with ThreadPoolExecutor() as pool:
        ends = [pool.submit(end, index, role) for index, role in enumerate(("answer", "probe"))]
        answered, probed = (each.result() for each in ends)
    assert (answered.exit_code, probed.exit_code) == (0, 0), answered.stderr + probed.stderr
    found = json.loads(probed.stdout)
    assert found["replied"] == PROBES, found
    assert found["ports_on_wire"] == found["ports"]
    assert found["median_us"] > 0
