"""Runs a submission's cells in a fresh process and judges its answers from outside."""

import json
import queue
import subprocess
import sys
import threading

from mgpt.course.judge import ERROR, AnswerRaised, Result, judge
from mgpt.course.questions import questions
from mgpt.text import _


class ChildLost(Exception):
    """The process died or did not answer in time."""


class Workbench:
    """One child process with a submission's cells run in it.

    A cell or call that kills the child, or takes longer than `timeout` seconds, costs itself only: a new child
    runs the other cells again.
    """

    def __init__(self, cells, timeout=20.0):
        self.cells, self.timeout = cells, timeout
        self.raised = {}  # index of a cell -> why it failed
        self._lost = set()  # cells that took their process with them: never run again
        self._child = None

    def __enter__(self):
        self._start()
        return self

    def __exit__(self, *_):
        self._stop()

    def call(self, name, args):
        """The plain value of a call (args None: of the variable).  AnswerRaised says why there is none."""
        try:
            reply = self._ask({"call": name, "args": None if args is None else list(args)})
        except ChildLost as lost:
            self._start()
            raise AnswerRaised(str(lost)) from None
        if reply.get("blank"):
            raise AnswerRaised("", blank=True)
        if "raised" in reply:
            raise AnswerRaised(reply["raised"])
        return reply["value"]

    def _start(self):
        """A new child in which every cell has run that can be run."""
        while True:
            self._stop()
            self._child = subprocess.Popen([sys.executable, "-m", "mgpt.course.runner"], stdin=subprocess.PIPE,
                                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            self._replies = queue.Queue()
            threading.Thread(target=self._listen, args=(self._child, self._replies), daemon=True).start()
            for index, source in enumerate(self.cells):
                if index in self._lost:
                    continue
                try:
                    reply = self._ask({"cell": source})
                except ChildLost as lost:
                    self.raised[index] = str(lost)
                    self._lost.add(index)
                    break
                if "raised" in reply:
                    self.raised[index] = reply["raised"]
            else:
                return

    def _stop(self):
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child.stdin.close()

    @staticmethod
    def _listen(child, replies):
        with child.stdout as lines:
            for line in lines:
                replies.put(line)
        replies.put(None)

    def _ask(self, request):
        try:
            self._child.stdin.write(json.dumps(request) + "\n")
            self._child.stdin.flush()
            line = self._replies.get(timeout=self.timeout)
        except queue.Empty:
            raise ChildLost(_("it did not finish within {limit:g} seconds").format(limit=self.timeout)) from None
        except BrokenPipeError:
            line = None
        if line is None:
            raise ChildLost(_("it ended the process it ran in"))
        return json.loads(line)


def judge_submission(submission, timeout=20.0, seed="practice"):
    """Results of all questions of the submission's exercise, in order."""
    results = []
    with Workbench(submission.cells, timeout) as bench:
        for question in questions(submission.stem).values():
            if question.id not in submission.answers:
                results.append(Result(question.id, ERROR, 0, question.points, _("its answer cell is missing")))
                continue
            results.append(judge(question, _caller(bench, question, submission.answers[question.id]), seed))
    return results


def _caller(bench, question, cell):
    def call(*args):
        try:
            return bench.call(question.asks_for, None if question.is_choice else args)
        except AnswerRaised as problem:
            if cell not in bench.raised or problem.blank:
                raise
            raise AnswerRaised(_("{problem} (its cell: {why})").format(problem=problem, why=bench.raised[cell])) from None

    return call
