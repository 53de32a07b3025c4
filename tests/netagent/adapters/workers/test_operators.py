# SPDX-License-Identifier: Apache-2.0
import asyncio
import json

from netagent.adapters.workers.operators import OperatorWorker
from netagent.config import OperatorsConfig

WANTED = OperatorsConfig(enabled=True, uprobes=True)


def said(**values):
    return json.dumps(values).encode() + b"\n"


def test_what_is_watched_and_what_is_refused_is_known():
    worker = OperatorWorker(WANTED)
    worker._hear(said(attached=11, libraries=[]))
    assert (worker.attached, worker.refusal) == (11, "")
    worker._hear(said(error="uprobes", remedy="run as root", code=1))
    assert (worker.attached, worker.refusal) == (0, "uprobes: run as root")


def test_a_line_that_makes_no_sense_changes_nothing():
    worker = OperatorWorker(WANTED)
    worker._hear(b"Traceback\n")
    assert worker.refusal == ""


def test_without_leave_nothing_is_started():
    asyncio.run(OperatorWorker(OperatorsConfig(enabled=True)).run())


async def served(folder, answer):
    """Be what systemd starts behind the socket; return the worker, and what it was asked."""
    asked = asyncio.get_running_loop().create_future()

    async def serve(reader, writer):
        asked.set_result(json.loads(await reader.readline()))
        writer.write(answer)
        writer.close()

    path = str(folder / "prober.sock")
    async with await asyncio.start_unix_server(serve, path):
        worker = OperatorWorker(WANTED, path)
        await worker._once()
        return worker, await asked


def test_behind_a_socket_it_is_asked_and_heard_as_a_child_is(tmp_path):
    worker, asked = asyncio.run(served(tmp_path, said(attached=11, libraries=[])))
    assert asked == {"folder": WANTED.folder}
    assert (worker.attached, worker.refusal) == (11, "")
    worker, _ = asyncio.run(served(tmp_path, said(error="uprobes", remedy="mount", code=1)))
    assert worker.refusal == "uprobes: mount"


def test_a_unit_that_is_not_started_is_a_refusal_with_its_name(tmp_path):
    worker = OperatorWorker(WANTED, str(tmp_path / "none.sock"))
    asyncio.run(worker._once())
    assert worker.refusal.startswith("uprobes (")
    assert worker.refusal.endswith("No such file or directory): systemctl start "
                                   "netagent-operators.socket")  # fmt: skip


def test_while_a_worker_behind_a_socket_goes_on_its_connection_stays_open(tmp_path):
    async def inside():
        ended = asyncio.Event()

        async def serve(reader, writer):
            writer.write(said(attached=3))
            await reader.read()  # until who asked is gone
            ended.set()
            writer.close()

        path = str(tmp_path / "prober.sock")
        async with await asyncio.start_unix_server(serve, path):
            worker = OperatorWorker(WANTED, path)
            running = asyncio.create_task(worker.run())
            async with asyncio.timeout(20):
                while worker.attached != 3:  # noqa: ASYNC110 - there is no event to wait for
                    await asyncio.sleep(0)
            assert not ended.is_set()
            running.cancel()
            async with asyncio.timeout(20):
                await ended.wait()

    asyncio.run(inside())
