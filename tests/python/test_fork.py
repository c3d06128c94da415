"""Forked processes: one forked between calls may run the session, one forked during a call is told so and does not
wait for threads that it does not have."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest
from onnx import TensorProto, helper

tensorbox = pytest.importorskip("tensorbox")

FINE, REFUSED, WRONG = 10, 11, 12


def product(threads: int) -> tensorbox.Session:
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["c"]), helper.make_node("Relu", ["c"], ["y"])],
                              "product", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 256]),
                                          helper.make_tensor_value_info("w", TensorProto.FLOAT, [256, 256])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 256])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return tensorbox.Session(model, compile=False, threads=threads)


def in_child(work) -> int:
    """How a forked process that does `work` ends; a process that hangs is killed: -9."""
    pid = os.fork()
    if pid == 0:
        code = WRONG
        try:
            code = FINE if work() else WRONG
        except tensorbox.BackendError as e:
            code = REFUSED if "forked while another thread" in str(e) else WRONG
        finally:
            os._exit(code)
    end = time.time() + 60
    while time.time() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return -9


@pytest.mark.parametrize("threads", [1, 2])
def test_a_process_forked_between_calls_runs_the_session(threads):
    session = product(threads)
    feeds = {"x": np.ones((64, 256), np.float32), "w": np.ones((256, 256), np.float32)}
    session.run(feeds)
    assert in_child(lambda: bool((session.run(feeds)["y"] == 256).all())) == FINE


def test_processes_forked_right_behind_calls_do_not_wait_for_workers():
    """Workers look for work for a while behind a call, and hold locks of their library meanwhile."""
    session = product(2)
    feeds = {"x": np.ones((256, 256), np.float32), "w": np.ones((256, 256), np.float32)}
    ends = []
    for _ in range(20):
        session.run(feeds)
        ends.append(in_child(lambda: bool((session.run(feeds)["y"] == 256).all())))
    assert set(ends) <= {FINE, REFUSED} and FINE in ends, ends


@pytest.mark.parametrize("threads", [1, 2])
def test_a_process_forked_during_a_call_is_told_so(threads):
    session = product(threads)
    feeds = {"x": np.ones((4096, 256), np.float32), "w": np.ones((256, 256), np.float32)}
    stop = threading.Event()

    def run_on():
        while not stop.is_set():
            session.run(feeds)

    other = threading.Thread(target=run_on)
    other.start()
    try:
        ends = [in_child(lambda: bool((session.run(feeds)["y"] == 256).all())) for _ in range(8)]
    finally:
        stop.set()
        other.join()
    assert set(ends) <= {FINE, REFUSED}, ends
    assert REFUSED in ends, "no fork fell into a call"
    assert (session.run(feeds)["y"] == 256).all()
