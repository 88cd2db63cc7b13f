"""Threads, processes, signals: simulations run in processes of their own, and Python goes on meanwhile."""
import concurrent.futures
import multiprocessing
import os
import pathlib
import signal
import threading
import time

import pytest

import orrery


def step_of(model):
    found = orrery.plan(model, "dgx-a100", global_batch=64, top=2)
    return [plan.step_time_s for plan in found.plans]


def long_plan():
    """Some seconds of simulation: every rank, every message."""
    return orrery.plan("gpt2-medium", "dgx-a100", nodes=4, global_batch=512, pp=4, tp=8, dp=1, micro_batch=1, schedule="1f1b",
                       top=1).best


MODELS = ["gpt2", "bert-base", "gpt2-medium", "resnet50"]


def test_threads_get_the_answers_of_one():
    alone = [step_of(model) for model in MODELS]
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        assert list(threads.map(step_of, MODELS)) == alone


def test_other_threads_run_meanwhile():
    plan, ticks, over = long_plan(), [], threading.Event()

    def tick():
        while not over.wait(0.005):
            ticks.append(time.monotonic())

    ticker = threading.Thread(target=tick)
    ticker.start()
    before = time.monotonic()
    orrery.simulate(plan, fold=False, detail="messages", timeline=False)
    after = time.monotonic()
    over.set()
    ticker.join()
    during = [t for t in ticks if before < t < after]
    assert len(during) > (after - before) / 0.005 / 10


def test_a_forked_worker_simulates():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(step_of, MODELS[:2]) == [step_of(model) for model in MODELS[:2]]


def children_of(pid):
    children = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it has ended
        if int(fields[1]) == pid:
            children.append(int(stat.parent.name))
    return children


def test_a_simulating_process_that_dies_is_an_exception():
    plan, raised = long_plan(), []

    def simulate():
        try:
            for _ in range(50):
                orrery.simulate(plan, fold=False, detail="messages", timeline=False)
        except orrery.InternalError as error:
            raised.append(str(error))

    thread = threading.Thread(target=simulate)
    thread.start()
    # This process's own children are its servers; theirs simulate.
    while thread.is_alive() and not raised:
        for server in children_of(os.getpid()):
            for simulating in children_of(server):
                os.kill(simulating, signal.SIGKILL)
        time.sleep(0.01)
    thread.join()
    assert raised and "killed by signal 9" in raised[0]
    assert step_of("gpt2")  # and the next one works


def test_what_progress_raises_goes_up():
    class Enough(Exception):
        pass

    def enough(done, total):
        assert 0 <= done <= total
        raise Enough

    with pytest.raises(Enough):
        orrery.plan("gpt2", "dgx-a100", progress=enough)
    seen = []
    orrery.whatif("gpt2", "dgx-a100", vary={"nodes": [1, 2]}, progress=lambda *counts: seen.append(counts))
    assert seen[-1] == (2, 2)


def test_control_c_ends_a_search():
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        for _ in range(100):
            orrery.plan("gpt3-175b", "dgx-a100", nodes=128, global_batch=1536, seq_len=2048)
    timer.join()
