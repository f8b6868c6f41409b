"""The number of threads follows what is measured."""

from __future__ import annotations

from stormpsr.recognizer.threads import MeasuredThreads


class Machine:
    """Takes so many seconds per frame with so many threads."""

    def __init__(self, **seconds: float) -> None:
        self.seconds = {int(name[1:]): value for name, value in seconds.items()}
        self.now, self.threads = 0.0, 0
        self.used: list[int] = []

    def set_threads(self, n: int) -> None:
        self.threads = n

    def work(self, threads: MeasuredThreads, n_frames: int) -> None:
        for _ in range(n_frames):
            with threads:
                self.now += self.seconds[self.threads]
                self.used.append(self.threads)


def test_the_fastest_number_is_chosen() -> None:
    machine = Machine(n1=0.1, n2=0.06, n4=0.04)
    threads = MeasuredThreads(machine.set_threads, 4, lambda: machine.now)
    machine.work(threads, 100)
    assert threads.candidates == [1, 2, 4]
    assert (threads.chosen, machine.threads) == (4, 4)


def test_more_threads_that_gain_little_are_left_to_others() -> None:
    machine = Machine(n1=0.1, n2=0.095)
    threads = MeasuredThreads(machine.set_threads, 2, lambda: machine.now)
    machine.work(threads, 100)
    assert threads.chosen == 1


def test_it_is_measured_again_when_other_work_slows_it_down() -> None:
    machine = Machine(n1=0.1, n2=0.06)
    threads = MeasuredThreads(machine.set_threads, 2, lambda: machine.now)
    machine.work(threads, 100)
    assert threads.chosen == 2
    machine.seconds[2] = 0.5  # another program takes a core
    machine.work(threads, 300)
    assert (threads.chosen, machine.threads) == (1, 1)
    machine.seconds[2] = 0.06
    machine.work(threads, 7000)
    assert threads.chosen == 2, "it is tried again after a while, even if nothing got slower"


def test_one_core_needs_no_choice() -> None:
    machine = Machine(n1=0.1)
    threads = MeasuredThreads(machine.set_threads, 1, lambda: machine.now)
    machine.work(threads, 100)
    assert set(machine.used) == {1}


def test_what_has_lost_is_not_tried_any_longer() -> None:
    machine = Machine(n1=0.1, n2=5.0)
    threads = MeasuredThreads(machine.set_threads, 2, lambda: machine.now)
    machine.work(threads, 100)
    assert threads.chosen == 1
    assert machine.used.count(2) == 1
