"""Runs a submission's cells in a process of their own and judges its answers from outside."""

import contextlib
import json
import queue
import re
import subprocess
import sys
import threading
import time

from mgpt.course.judge import ERROR, AnswerRaised, Result, judge
from mgpt.course.questions import questions
from mgpt.text import _

LONGEST_REPLY, DEEPEST, LARGEST_INT = 4_000_000, 50, 2**1000
TIMEOUTS_IN_ALL = 20  # a whole submission may take this many times the limit of one cell or call


FOLDER = "mgpt-grade-"  # how temporary folders of the grader begin


class NurseryLost(Exception):
    """The process that children come from is gone or silent; the submission is not to blame."""


class ChildLost(Exception):
    """The process died, did not answer in time or answered nonsense.  `late`: it was the time."""

    def __init__(self, message, late=False):
        super().__init__(message)
        self.late = late


class SocketChannel:
    """Lines to and from a forked child, with a deadline and a largest size for each."""

    def __init__(self, connection):
        self._connection, self._rest = connection, b""

    def ask(self, line, seconds):
        """The next line that comes back; None at the end of file.  TimeoutError, or OSError for a closed channel."""
        end = time.monotonic() + seconds
        self._connection.settimeout(seconds)
        self._connection.sendall(line)
        while b"\n" not in self._rest:
            self._connection.settimeout(max(1e-3, end - time.monotonic()))
            data = self._connection.recv(1 << 16)
            if not data or len(self._rest) > LONGEST_REPLY:
                return None
            self._rest += data
        line, self._rest = self._rest.split(b"\n", 1)
        return line

    def close(self):
        self._connection.close()


class Interpreter:
    """Where no zygote can fork: a fresh interpreter for each child, without walls around it."""

    hides_files = hides_network = False
    layers, places = {}, ()
    spent = 0.0

    def fork(self):
        self._child = subprocess.Popen([sys.executable, "-m", "mgpt.course.runner"], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._replies = queue.Queue()
        threading.Thread(target=self._listen, args=(self._child, self._replies), daemon=True).start()
        return self

    @staticmethod
    def _listen(child, replies):
        with child.stdout as lines:
            while line := lines.readline(LONGEST_REPLY):
                replies.put(line)
        replies.put(None)

    def ask(self, line, seconds):
        self._child.stdin.write(line)
        self._child.stdin.flush()
        try:
            return self._replies.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError from None

    def stop(self):
        self._child.kill()
        self._child.wait()
        with contextlib.suppress(OSError):
            self._child.stdin.close()

    def close(self):
        """A channel's end: the child itself ends with `stop`."""

    def abandon(self):
        self._child.kill()


@contextlib.contextmanager
def open_nursery(stem=None, sandbox=True, limits=None):
    """What children come from: a Zygote with every layer that this platform offers, or else an Interpreter."""
    with contextlib.ExitStack() as stack:
        nursery = Interpreter()
        if sys.platform == "linux":
            from mgpt.course.grade.layers import Limits
            from mgpt.course.grade.zygotes import Zygote

            try:
                nursery = stack.enter_context(Zygote(stem, sandbox, limits or Limits()))
            except NurseryLost:
                if sandbox:
                    nursery = stack.enter_context(Zygote(stem, False, limits or Limits()))
        yield nursery


class Workbench:
    """A child process with a submission's cells run in it.

    A cell or call that kills the child, floods it or takes longer than `timeout` seconds costs itself only: a new
    child runs the other cells again.  An answer that is lost among the others gets one more try without the other
   answers, so that what one of them left behind harms it alone.
    """

    def __init__(self, cells, timeout=20.0, nursery=None, answers=()):
        self.cells, self.timeout, self.answers = cells, timeout, set(answers)
        self.raised = {}  # index of a cell -> why it failed
        self._nursery, self._owned = nursery, None
        self._lost, self._gone = {}, {}  # cells that took their process with them: never run again; answers likewise
        self._left = set()  # cells that left threads or processes behind
        self._suspects, self._held_up = set(), None  # those set aside for it, and the cell that was late among them
        self._alone = None  # the one answer that runs in this child; None: all of them
        self._channel, self._count, self._end = None, 0, None

    def __enter__(self):
        self._owned = contextlib.ExitStack()
        if self._nursery is None:
            self._nursery = self._owned.enter_context(open_nursery())
        self._end = time.monotonic() + TIMEOUTS_IN_ALL * self.timeout
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._stop()
        self._owned.close()

    def call(self, name, args, cell=None):
        """The plain value of a call (args None: of the variable).  AnswerRaised says why there is none.

        cell: the index of the answer's cell, where it has one.
        """
        request = {"call": name, "args": None if args is None else list(args)}
        if name in self._gone:
            raise AnswerRaised(self._gone[name])
        if self._alone not in (None, cell):
            self._start()
        try:
            if self._alone is None and cell in self._lost and self._second_chance(cell, self._lost[cell]):
                self._start(alone=cell)
            reply = self._ask_twice(request, cell)
        except ChildLost as lost:
            self._gone[name] = str(lost)
            self._start()
            raise AnswerRaised(str(lost)) from None
        if reply.get("blank"):
            raise AnswerRaised("", blank=True)
        if "value" in reply:
            return _admitted(reply["value"])
        if reply.get("spent"):
            self._start(self._alone)
        raise AnswerRaised(self._text(reply.get("raised", "")))

    def _ask_twice(self, request, cell):
        try:
            return self._ask(request)
        except ChildLost as lost:
            if self._alone is not None or not self._second_chance(cell, lost):
                raise
            self._start(alone=cell)
            return self._ask(request)

    def _second_chance(self, cell, lost):
        """Whether something other than the answer itself may have ended the child."""
        return cell is not None and self.answers - {cell} and (not lost.late or bool(self._left - {cell}))

    def _start(self, alone=None):
        """A new child in which every cell has run that can be run; with `alone`, of the answers that one only."""
        self._alone = alone
        while not self._run_cells(alone):
            pass

    def _run_cells(self, alone):
        self._stop()
        self._channel = self._fork()
        for index, source in enumerate(self.cells):
            if not source.strip() or (alone is None and index in self._lost):
                continue
            if alone is not None and index != alone and (index in self.answers or index in self._lost):
                continue
            try:
                reply = self._ask({"cell": source})
            except ChildLost as lost:
                if time.monotonic() >= self._end:
                    self.raised.setdefault(index, str(lost))
                    return True
                self.raised[index] = str(lost)
                if alone is not None and index == alone:
                    raise
                self._blame(index, lost)
                return False
            if "raised" in reply:
                self.raised[index] = self._text(reply["raised"])
            elif index == alone:
                self.raised.pop(index, None)
            if reply.get("left"):
                self._left.add(index)
            if reply.get("spent"):
                self._lost[index] = ChildLost(self.raised[index])
                return False
        return True

    def _blame(self, index, lost):
        """Set aside what took too long; first those cells that left something running, which may be the cause."""
        suspects = self._left - self._lost.keys() - {index} if lost.late else set()
        if suspects:
            self._lost |= dict.fromkeys(suspects, ChildLost(_("what it left running held up the others")))
            self._suspects, self._held_up = suspects, index
            del self.raised[index]
        else:
            self._lost[index] = lost
            if index == self._held_up:  # late without them too: they are cleared
                for cleared in self._suspects:
                    del self._lost[cleared]
                self._left -= self._suspects
                self._held_up = None

    def _fork(self):
        connection = self._nursery.fork()
        return connection if isinstance(connection, Interpreter) else SocketChannel(connection)

    def _stop(self):
        if self._channel is not None:
            self._channel.close()
            self._channel = None
            with contextlib.suppress(NurseryLost):  # the next fork starts another
                self._nursery.stop()

    def _ask(self, request):
        self._count += 1
        seconds = min(self.timeout, self._end - time.monotonic())
        if seconds <= 0:
            raise ChildLost(_("the whole notebook took longer than {limit:g} seconds").format(
                limit=TIMEOUTS_IN_ALL * self.timeout), late=True)
        line = json.dumps({"n": self._count, **request}).encode() + b"\n"
        try:
            reply = self._channel.ask(line, seconds)
        except TimeoutError:
            words = _("it did not finish within {limit:g} seconds").format(limit=self.timeout)
            raise ChildLost(words, late=True) from None
        except OSError:
            reply = None
        if reply is None:
            raise ChildLost(_("it ended the process it ran in"))
        try:
            number, reply = json.loads(reply)
            if number != self._count or type(reply) is not dict:
                raise ValueError
        except (ValueError, TypeError, RecursionError):
            raise ChildLost(_("it wrote into the grader's own channel")) from None
        return reply

    def _text(self, words):
        """One line of a learner's process, the same on every run and fit to be printed."""
        words = str(words)
        for place in self._nursery.places:
            words = words.replace(place, "…")
        words = re.sub(r"0x[0-9a-fA-F]{5,}", "0x…", words)
        return "".join(c if c.isprintable() else " " for c in words.encode("utf-8", "replace").decode())[:400]


def _admitted(value, depth=0):
    """The value, if the judge can compare it: not too deep, no number beyond every float."""
    if depth > DEEPEST:
        raise AnswerRaised(_("the value is nested too deeply"))
    if type(value) is int and abs(value) > LARGEST_INT:
        raise AnswerRaised(_("a number of it is too large"))
    for item in value if type(value) is list else value.values() if type(value) is dict else ():
        _admitted(item, depth + 1)
    return value


def caller(bench, question, cell):
    """call(*args) for the judge, over an answer in a Workbench; what it gave once is not asked again."""
    known = {}

    def call(*args):
        key = json.dumps(args)
        if key not in known:
            try:
                known[key] = bench.call(question.asks_for, None if question.is_choice else args, cell)
            except AnswerRaised as problem:
                if cell in bench.raised and not problem.blank and str(problem) != bench.raised[cell]:
                    problem = AnswerRaised(_("{problem} (its cell: {why})").format(
                        problem=problem, why=bench.raised[cell]))
                known[key] = problem
        if isinstance(known[key], AnswerRaised):
            raise known[key]
        return known[key]

    return call


def judge_submission(submission, timeout=20.0, seed="practice"):
    """Results of all questions of the submission's exercise, in order, by what a learner may see."""
    results = []
    with (open_nursery(submission.stem) as nursery,
          Workbench(submission.cells, timeout, nursery, submission.answers.values()) as bench):
        for question in questions(submission.stem).values():
            if question.id in submission.answers:
                results.append(judge(question, caller(bench, question, submission.answers[question.id]), seed))
            else:
                results.append(Result(question.id, ERROR, 0, question.points, _("its answer cell is missing")))
    return results
