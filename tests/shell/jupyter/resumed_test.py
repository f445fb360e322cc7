"""Notebooks that come to the detachable session of a terminal, with the fake compiler and workers of ../core/fake, and one with real
ranks: python3 resumed_test.py LOCKSTEP FAKES"""
import json
import os
import re
import signal
import subprocess
import sys
import unittest

from kernel_support import LIMIT_S, Kernel, results_of, text_of, use_own_folders

use_own_folders()

from detachable import DetachableSession, prompt  # noqa: E402
from processes import wait_gone  # noqa: E402
from waiting import wait_until  # noqa: E402

LOCKSTEP, FAKES = sys.argv.pop(1), sys.argv.pop(1)


def has_text(text):
    return lambda message: message["msg_type"] != "execute_input" and text in json.dumps(message["content"], ensure_ascii=False)


class Notebooks(DetachableSession):
    lockstep_program, fakes = LOCKSTEP, FAKES

    def notebook(self, *options, id=None, **environment):
        name = os.path.basename(self.folder).lower()
        self.lockstep("kernel", "install", "--name", name, "--resume", id or self.id, *options)
        kernel = Kernel(name, **self.own, **environment)
        self.addCleanup(kernel.close)
        return kernel

    def ok(self, kernel, code):
        reply, published = kernel.run(code)
        self.assertEqual(reply["status"], "ok", reply)
        return reply["execution_count"], text_of_all(published)

    def fails(self, kernel, code):
        reply, published = kernel.run(code)
        self.assertEqual((reply["status"], reply["ename"]), ("error", "session_away"), reply)
        self.assertEqual([message["msg_type"] for message in published], ["error"])
        return reply["evalue"]

    def taken(self, program, number):
        program.wait_for(prompt(number) + r"\s*\Z")

    # ---- Picked up ----------------------------------------------------------------------------------------------------------

    def test_numbers_history_and_what_came_meanwhile(self):
        first = self.start()
        self.run_cell(first, "print before", 2)
        self.waiting_cell(first, 2)
        self.kill(first)
        self.go()
        wait_until(lambda: '"event":"ran","faults":0,"input":2' in self.journal().replace(" ", ""))
        kernel = self.notebook()
        number, text = self.ok(kernel, "print after")
        self.assertEqual(number, 2)
        self.assertRegex(text, rf"\A• {self.id}, detached since [-\d :]*\d\d:\d\d\n")
        self.assertEqual(len(re.findall("^between2$", text, re.MULTILINE)), 1, text)
        self.assertTrue(text.endswith("0-1 │ after\n"), text)
        self.assertNotIn("0-1 │ before", text)  # it had been seen
        self.assertEqual(self.ok(kernel, "print next"), (3, "0-1 │ next\n"))
        self.assertIn(f"attached: a notebook", self.lockstep("sessions", "list"))
        kernel.close()
        self.wait_detached()
        second = self.resume()
        self.taken(second, 4)
        self.assertIn("▸ print next\n0-1 │ next\n", second.screen.text())
        second.send("\x1b[A\x1b[A")
        second.wait_for(r"▸ print after\s*\Z")

    def test_names_of_real_ranks(self):
        del self.own["LOCKSTEP_BIN"], self.environment["LOCKSTEP_BIN"]
        first = self.start()
        self.run_cell(first, "auto weight = torch::full({2}, 1.5);", 2)
        self.kill(first)
        kernel = self.notebook(JPY_SESSION_NAME="/home/me/lesson.ipynb")
        reply, published = kernel.run("dist::all_reduce(weight); weight.sum().item<float>()")
        self.assertEqual(results_of(published), ["6"], reply)
        self.assertIn("attached: the notebook /home/me/lesson.ipynb", self.lockstep("sessions", "list"))
        self.assertIn("weight", kernel.ask(kernel.client.complete("wei"))["matches"])
        self.ok(kernel, "int more = 1;")
        kernel.close()
        second = self.resume()
        self.taken(second, 4)
        second.send("weight.sum().item<float>() + more\r")
        second.wait_for("^0-1 = 7")
        self.taken(second, 5)

    def test_a_cell_of_the_terminal_that_still_runs(self):
        first = self.start()
        self.waiting_cell(first, 1)
        self.kill(first)
        kernel = self.notebook()
        request = kernel.client.execute("print mine")
        kernel.wait_for(request, has_text("detached since"))
        self.go()
        reply, published = kernel.finish(request)
        self.assertEqual(reply["status"], "ok", reply)
        self.assertRegex(text_of_all(published), r"\A(0 │ )?between1\n0-1 │ mine\n\Z")

    def test_what_is_typed_waits_at_the_prompt(self):
        first = self.start()
        first.send("print one")
        first.wait_for("▸ print one$")
        self.kill(first)
        kernel = self.notebook()
        self.ok(kernel, "print two")
        kernel.close()
        second = self.resume()
        second.wait_for(r"▸ print one\s*\Z")
        self.run_cell(second, " more", 3)
        self.assertIn("\n0-1 │ one more\n", second.screen.text())

    def test_interrupts(self):
        self.kill(self.start())
        kernel = self.notebook()
        for interrupt in (kernel.interrupt, lambda: os.kill(kernel.pid, signal.SIGINT)):
            request = kernel.client.execute("print begun\nloop")
            kernel.wait_for(request, has_text("begun"))
            interrupt()
            self.assertEqual(kernel.finish(request)[0]["ename"], "interrupted")
        self.ok(kernel, "print x")

    # ---- Two shells ---------------------------------------------------------------------------------------------------------

    def test_take_over_in_both_directions(self):
        first = self.start()
        self.run_cell(first, "print x", 2)
        kernel = self.notebook()
        self.assertRegex(self.fails(kernel, "print y"), rf"\Athe session {self.id} is attached: /dev/pts/\d+, since .*"
                         r"%resume --take-over in a cell takes it from there\Z")
        self.assertIn("is attached: /dev/pts/", self.fails(kernel, "print game over"))
        self.assertNotRegex(self.journal(), "print y|game over")
        _, text = self.ok(kernel, "%resume --take-over")
        self.assertEqual(text, f"this notebook has the session {self.id}\n")
        self.assertEqual(first.wait_end(), 0)
        self.assertIn(f"a notebook has taken the session {self.id} over; lockstep --resume {self.id} --take-over takes it back",
                      first.screen.text().replace("\n", ""))
        self.assertIn("0-1 │ y\n", self.ok(kernel, "print y")[1])

        refused = self.resume()
        self.assertEqual(refused.wait_end(), 2)
        self.assertIn("is attached: a notebook, since", refused.screen.text().replace("\n", " "))
        watching = self.resume("--watch")
        watching.wait_for("0-1 │ y")
        request = kernel.client.execute("print begun\nloop")
        queued = kernel.client.execute("print never")
        watching.wait_for(prompt(3) + " print begun\nloop\n0-1 │ begun")
        kernel.client.shell_channel.send(kernel.client.session.msg("comm_open", {"comm_id": "c", "target_name": "t"}))
        second = self.resume("--take-over")
        reply, _ = kernel.finish(request)
        self.assertRegex(reply["evalue"], rf"\A/dev/pts/\d+ has taken the session {self.id} over; %resume --take-over in a cell takes it back\Z")
        self.assertEqual(kernel.reply(queued)["ename"], "session_away")
        kernel.client.is_complete("x")
        self.assertEqual(kernel.client.get_shell_msg(timeout=LIMIT_S)["msg_type"], "is_complete_reply")  # none to comm_open
        second.wait_for("0-1 │ begun")
        second.send("\x03")
        second.wait_for("■ ranks 0-1: interrupted; variables are kept")
        self.taken(second, 4)
        self.assertNotIn("print never", self.journal())
        self.run_cell(second, "print typed", 5)
        self.assertIn("is attached: /dev/pts/", self.fails(kernel, "print z"))
        self.assertEqual(kernel.interrupt()["status"], "ok")
        second.send("%detach\r")
        self.assertEqual(second.wait_end(), 0)
        number, text = self.ok(kernel, "print z")
        self.assertEqual(number, 5)
        self.assertIn("▸ %detach\n0-1 │ z\n", text)

    def test_one_of_two_notebooks_has_the_session(self):
        self.kill(self.start())
        first, second = self.notebook(), self.notebook()
        self.assertIn("is attached: a notebook, since", self.fails(second, "print y"))
        self.ok(second, "%resume --take-over")
        self.assertIn("is attached: a notebook, since", self.fails(first, "print y"))
        self.assertIn("0-1 │ x\n", self.ok(second, "print x")[1])

    def test_a_kernel_that_takes_over_at_its_start(self):
        first = self.start()
        kernel = self.notebook("--take-over")
        self.assertEqual(first.wait_end(), 0)
        self.assertIn("0-1 │ x\n", self.ok(kernel, "print x")[1])

    # ---- Ends ---------------------------------------------------------------------------------------------------------------

    def test_a_restart_and_a_shutdown_leave_the_session(self):
        self.kill(self.start())
        kernel = self.notebook()
        self.ok(kernel, "print x")
        for now in (False, True):  # asked to, and killed
            kernel.manager.restart_kernel(now=now)
            kernel.client.wait_for_ready(timeout=LIMIT_S)
            number, _ = self.ok(kernel, "print again")
            self.assertEqual(number, 3 if now else 2)
        request = kernel.client.execute(f"!cat {self.folder}/go; echo between")
        kernel.wait_for(request, lambda message: message["msg_type"] == "execute_input")
        wait_until(lambda: "/go; " in self.journal())
        kernel.manager.shutdown_kernel()
        self.wait_detached()
        self.go()
        second = self.resume()
        second.wait_for("^between$")
        self.taken(second, 5)

    def test_detach(self):
        self.kill(self.start())
        kernel = self.notebook()
        _, text = self.ok(kernel, "%detach 30m")
        self.assertRegex(text, rf"the session {self.id} goes on without a notebook until .*; the next cell comes back to it\n\Z")
        self.assertRegex(self.lockstep("sessions", "list"), rf"{self.id} +detached until")
        self.ok(kernel, "print x")
        self.assertIn("attached: a notebook", self.lockstep("sessions", "list"))
        request, queued = kernel.client.execute("%detach\nprint z"), kernel.client.execute("print never")
        reply, published = kernel.finish(request)
        self.assertEqual((reply["status"], reply["execution_count"]), ("ok", 3))
        self.assertRegex(text_of_all(published), rf"\Athe session {self.id} goes on without a notebook")
        # A cell that was queued is away with the session; one that comes to the kernel after that comes back to it.
        reply = kernel.reply(queued)
        has_run = reply["status"] == "ok"
        if not has_run:
            self.assertEqual(reply["ename"], "session_away")
        number, text = self.ok(kernel, "print last")
        self.assertEqual(number, 5 if has_run else 4)
        self.assertRegex(text, r"(?s)0-1 │ last\n\Z" if has_run else r"(?s)0-1 │ z\n.*0-1 │ last\n\Z")
        os.kill(self.keeper, signal.SIGSTOP)
        self.assertIn("the keeper of this session does not answer", kernel.run("%detach")[0]["evalue"])
        os.kill(self.keeper, signal.SIGCONT)

    def test_exit_ends_the_session(self):
        self.kill(self.start())
        kernel = self.notebook()
        self.ok(kernel, "print x")
        reply, _ = kernel.run("exit")
        self.assertEqual([part["source"] for part in reply["payload"]], ["ask_exit"])
        wait_until(lambda: not kernel.manager.is_alive())
        self.assertEqual(wait_gone(self.processes, LIMIT_S), {})
        self.assertEqual(json.loads(self.journal().splitlines()[-1])["event"], "closed")

    def test_a_killed_keeper_and_a_session_that_is_asked_to_end(self):
        for victim, number, words in (("keeper", signal.SIGKILL, "the keeper of the session {} is gone: the session ends, too|■ ranks 0-1: interrupted"),
                                      ("pid", signal.SIGKILL, r"the session {} has ended \(exit code 137\)"),
                                      ("pid", signal.SIGTERM, "■ ranks 0-1: interrupted")):
            self.kill(self.start())
            kernel = self.notebook()
            request = kernel.client.execute("print begun\nloop")
            kernel.wait_for(request, has_text("begun"))
            os.kill(getattr(self, victim), number)
            self.assertRegex(kernel.reply(request)["evalue"], rf"\A({words.format(self.id)})")
            self.assertEqual(wait_gone(self.processes, LIMIT_S), {})
            self.assertIn(f"the session {self.id} has ended", self.fails(kernel, "print x"))
            kernel.close()
            self.lockstep("sessions", "clean")

    # ---- Mistakes -----------------------------------------------------------------------------------------------------------

    def test_what_can_not_be_resumed(self):
        for words, text in ((("run", "--resume", "77-ab"), "there is no detachable session 77-ab on this machine"),
                            (("install", "--resume", "77-ab"), "there is no detachable session 77-ab on this machine"),
                            (("run", "--resume", ""), "--resume takes the id of a session"),
                            (("run", "--resume", "last", "-n", "2"), "--num-processes can't be used with --resume"),
                            (("install", "--resume", "last", "--python"), "--python can't be used with --resume"),
                            (("run", "--take-over"), "--resume")):
            self.assertIn(text, self.lockstep("kernel", *words, code=2))
        if any("terminal" in each for each in json.loads(self.lockstep("sessions", "list", "--json"))):
            self.skipTest("the session left last is another one of this user")
        kernel = self.notebook(id="last")
        self.assertIn("there is no detachable session on this machine", self.fails(kernel, "print x"))
        self.assertEqual(kernel.ask(kernel.client.is_complete("x"))["status"], "unknown")
        first = self.start()
        self.kill(first)
        self.assertIn("0-1 │ x\n", self.ok(kernel, "print x")[1])  # it has come

    def test_an_editor_that_is_open(self):
        self.kill(self.start_in_editor("--detachable"))
        kernel = self.notebook()
        self.assertEqual(self.fails(kernel, "print y"), f"the session {self.id} does not answer: where an editor or a pager is open in it, "
                         f"lockstep --resume {self.id} shows it")
        second = self.resume()
        second.wait_for("^drawn again$")
        second.send("\r")
        second.wait_for(r"^its last line\n(.*\n)*" + prompt(2)[1:] + r" print x\s*\Z")
        self.kill(second)
        self.ok(kernel, "print y")


def text_of_all(published):
    return "".join(m["content"]["text"] for m in published if m["msg_type"] == "stream")


if __name__ == "__main__":
    unittest.main()
