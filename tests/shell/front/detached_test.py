"""Sessions that outlive their terminals: lost ones, those that come back, look on, or want to type at once; with the fake compiler and
workers of ../core/fake, whose cells are commands: python3 detached_test.py LOCKSTEP FAKES"""
import glob
import json
import os
import pathlib
import re
import signal
import socket
import stat
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../support"))
from detachable import SCRATCH, DetachableSession, prompt  # noqa: E402
from processes import descendants, start_time, wait_gone  # noqa: E402
from terminal_screen import Program  # noqa: E402
from waiting import LIMIT_S, wait_until  # noqa: E402

LOCKSTEP, FAKES = (sys.argv.pop(1), sys.argv.pop(1)) if len(sys.argv) > 2 else ("", "")


class Detachable(DetachableSession):
    lockstep_program, fakes = LOCKSTEP, FAKES

    # ---- Lost, and back -----------------------------------------------------------------------------------------------------

    def test_a_killed_terminal_and_what_came_meanwhile(self):
        first = self.start()
        self.run_cell(first, "print before", 2)
        self.waiting_cell(first, 2)
        self.kill(first)
        self.go()
        wait_until(lambda: "between2" in self.journal() and '"event":"ran","faults":0,"input":2' in self.journal().replace(" ", ""))
        second = self.resume()
        second.wait_for(prompt(2) + r"\s*\Z")
        text = second.screen.text()
        self.assertRegex(text, rf"\A• {self.id}, detached since \d\d:\d\d\n")
        self.assertEqual(len(re.findall("^between2$", text, re.MULTILINE)), 1, text)
        self.assertNotIn("0-1 │ before", text)  # it had been seen
        self.run_cell(second, "print after", 3)
        self.assertIn("\n0-1 │ after\n", second.screen.text())
        second.send("\x1b[A\x1b[A\x1b[A")  # the history of the session
        second.wait_for(r"▸ print before\s*\Z")
        second.send("\x03")
        second.wait_for(prompt(3) + r"\s*\Z")
        second.send("\x04")
        self.assertEqual(second.wait_end(), 0)

    def test_a_hang_up_while_a_cell_runs(self):
        first = self.start()
        self.waiting_cell(first, 1)
        os.close(first.fd)
        first.fd = os.open("/dev/null", os.O_RDWR)
        self.wait_detached()
        second = self.resume()
        second.wait_for("^• .*detached since")
        self.go()
        second.wait_for("^between1$")
        second.wait_for(prompt(1) + r"\s*\Z")
        self.assertEqual(len(re.findall("^between1$", second.screen.text(), re.MULTILINE)), 1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(first.pid, 0)[1]), 128 + signal.SIGHUP)
        first.exit_code = 0

    def test_what_is_typed_stays_at_the_prompt(self):
        first = self.start()
        first.send("print one")
        first.wait_for("▸ print one$")
        self.kill(first)
        second = self.resume()
        second.wait_for(r"▸ print one\s*\Z")
        self.run_cell(second, " more", 2)
        self.assertIn("\n0-1 │ one more\n", second.screen.text())

    def test_a_terminal_that_was_stopped_holds_nothing_up(self):
        first = self.start()
        self.waiting_cell(first, 1)
        first.send("%dist_status\r\x13")
        wait_until(lambda: "%dist_status" in self.journal())
        self.kill(first)
        self.go()
        second = self.resume()
        second.wait_for("^between1$")
        second.wait_for(prompt(1) + r"\s*\Z")
        self.assertNotIn(b"_lockstep", second.raw)  # the mark has come in time, and was taken out

    def test_a_terminal_that_hangs_holds_the_session_up_for_a_moment_only(self):
        first = self.start()
        first.send(f"!cat {self.folder}/go; seq 100001 160000\r")
        wait_until(lambda: "/go; " in self.journal())
        os.kill(first.pid, signal.SIGSTOP)
        self.go()
        wait_until(lambda: '"event":"ran"' in self.journal())
        self.assertEqual(self.sessions()[0]["terminal"]["until"], None)  # it is attached
        os.kill(first.pid, signal.SIGCONT)
        first.wait_for(r"… \d+ lines before these: lockstep sessions show")
        first.wait_for(r"^160000\n(.*\n)*" + prompt(1)[1:] + r"\s*\Z")
        self.run_cell(first, "print x", 2)
        self.assertIn("\n0-1 │ x\n", first.screen.text())

    def test_a_terminal_that_hangs_and_is_lost_has_seen_nothing_since_it_hung(self):
        first = self.start()
        first.send(f"!cat {self.folder}/go; seq 100001 160000\r")
        wait_until(lambda: "/go; " in self.journal())
        first.send("print two\r%dist_status\r")  # the next cell; what is done now says that all of it has come
        wait_until(lambda: "%dist_status" in self.journal())
        os.kill(first.pid, signal.SIGSTOP)
        self.go()
        wait_until(lambda: "0,1" in self.journal() and '"text":"two' in self.journal().replace(" ", ""))
        self.kill(first)
        second = self.resume()
        second.wait_for(r"^160000\n(.*\n)*0-1 │ two\n(.*\n)*" + prompt(2)[1:] + r"\s*\Z")

    def test_control_z_stops_the_terminal_alone(self):
        shell = Program(["bash", "--norc", "--noprofile", "-i"], columns=100, rows=50, environment=dict(self.own, PS1="shell: "))
        self.addCleanup(shell.__exit__)
        shell.wait_for("^shell:")
        shell.send(f"{LOCKSTEP} --detachable -n 2\r")
        shell.wait_for(prompt(1) + r"\s*\Z")
        (session,) = self.sessions()
        self.id, self.pid = session["id"], session["pid"]
        self.processes[(self.pid, start_time(self.pid))] = "session"
        shell.send(f"!cat {self.folder}/go; echo between\r")
        wait_until(lambda: "/go; " in self.journal())
        shell.send("\x1a")
        shell.wait_for(r"Stopped(.*\n)*shell:\s*\Z")
        self.go()
        wait_until(lambda: '"event":"ran"' in self.journal())
        shell.send("fg\r")
        shell.wait_for(r"^between\n(.*\n)*" + prompt(1)[1:] + r"\s*\Z")
        shell.send("\x04")
        shell.wait_for(r"shell:\s*\Z")

    def test_control_c_reaches_the_cell(self):
        self.kill(self.start())
        program = self.resume()
        program.wait_for(prompt(1) + r"\s*\Z")
        program.send("\x1b[200~print begun\nloop\x1b[201~\r")
        program.wait_for("0-1 │ begun")
        program.send("\x03")
        program.wait_for("■ ranks 0-1: interrupted; variables are kept")
        program.wait_for(prompt(2) + r"\s*\Z")

    def test_the_size_is_that_of_the_terminal_that_came(self):
        self.kill(self.start(columns=90, rows=30))
        program = self.resume(columns=132, rows=40)
        program.wait_for(prompt(1) + r"\s*\Z")
        program.send("!stty -F /dev/tty size\r")
        program.wait_for("^40 132$")
        program.resize(77, 33)
        program.wait_for(prompt(1) + r"\s*\Z")
        wait_until(lambda: program.send("!stty -F /dev/tty size\r") or program.pump(1) and "33 77" in program.screen.text())

    def test_a_dumb_terminal(self):
        first = self.start(TERM="dumb")
        self.waiting_cell(first, 1)
        self.kill(first)
        self.go()
        wait_until(lambda: "between1" in self.journal().split("/go; ")[-1])
        second = self.resume(TERM="dumb")
        second.wait_for(r"^between1$")
        second.wait_for(prompt(1) + r"\s*\Z")
        self.run_cell(second, "print x", 2)
        self.assertIn("\n0-1 │ x\n", second.screen.text())
        self.assertNotIn(b"_lockstep", second.raw)  # the mark

    def test_a_terminal_that_can_do_less_is_refused(self):
        self.kill(self.start())
        program = self.resume(TERM="dumb")
        self.assertEqual(program.wait_end(), 2)
        self.assertIn("draws by moving the cursor", program.screen.text())

    def test_detach(self):
        first = self.start()
        self.run_cell(first, "print x", 2)
        first.send("%detach soon\r")
        first.wait_for("✗ 'soon' is no time: write 90s, 30m, 8h or 2d")
        first.wait_for(prompt(2) + r"\s*\Z")
        first.send("%detach 30m\r")
        self.assertEqual(first.wait_end(), 0)
        # Near midnight the time has a date, and the line is broken.
        self.assertRegex(re.sub(r"\s", "", first.screen.text()),
                         rf"thesession{self.id}goesonwithoutaterminaluntil[-0-9]*\d\d:\d\d;lockstep--resume{self.id}")
        self.assertRegex(self.lockstep("sessions", "list"), rf"{self.id} +detached until [-0-9 ]*\d\d:\d\d +2 +shared_memory")
        (listed,) = self.sessions()
        self.assertAlmostEqual(listed["terminal"]["until"] - listed["terminal"]["since"], 1800, delta=2)
        second = self.resume()
        second.wait_for(prompt(2) + r"\s*\Z")
        self.waiting_cell(second, 2)
        second.send("%detach\r")  # while a cell runs
        self.assertEqual(second.wait_end(), 0)
        self.go()

    def test_a_session_that_no_terminal_could_come_back_to(self):
        long = f"{self.folder}/{'x' * (74 - len(self.folder))}"  # too long for the socket, and not for that of the ranks
        os.mkdir(long, mode=0o700)
        program = self.program("--detachable", "-n", "2", XDG_RUNTIME_DIR=long)
        program.wait_for(prompt(1))
        program.wait_for("^• the path of the session's socket is too long")
        program.send("%detach 8h\r")
        program.wait_for("✗ %detach would end this session: the path of")
        program.wait_for(prompt(1) + r"\s*\Z")
        program.send("\x04")
        self.assertEqual(program.wait_end(), 0)

    def test_detach_elsewhere(self):
        program = self.program("-n", "2")
        program.wait_for(prompt(1))
        program.send("%detach\r")
        program.wait_for("✗ this session ends with its terminal; lockstep --detachable starts one that %detach leaves")
        program.wait_for(prompt(1) + r"\s*\Z")
        program.send("\x04")
        self.assertEqual(program.wait_end(), 0)

    # ---- An editor that is open ---------------------------------------------------------------------------------------------

    def test_an_editor_that_is_open_draws_itself_again(self):
        self.kill(self.start_in_editor("--detachable"))
        second = self.resume()
        second.wait_for("^drawn again$")
        second.send("\r")
        second.wait_for(r"^its last line\n(.*\n)*" + prompt(2)[1:] + r" print x\s*\Z")
        self.assertNotIn(b"_lockstep", second.raw)  # the mark

    def test_an_editor_that_is_open_ends_with_its_session(self):
        first = self.start_in_editor("--detachable=1s")
        os.kill(first.pid, signal.SIGKILL)
        first.wait_end()
        self.assertEqual(wait_gone(self.processes, LIMIT_S), {})
        self.assertEqual(json.loads(self.journal().splitlines()[-1])["event"], "closed")  # in order, and not by force

    # ---- Two terminals ------------------------------------------------------------------------------------------------------

    def test_watch_and_take_over(self):
        first = self.start()
        second = self.resume()
        self.assertEqual(second.wait_end(), 2)
        self.assertRegex(second.screen.text().replace("\n", ""), rf"the session {self.id} is attached: /dev/pts/\d+, since \d\d:\d\d. --watch looks on")
        watching = self.resume("--watch")
        first.wait_for(r"• /dev/pts/\d+ watches")
        watching.wait_for(prompt(1) + r"\s*\Z")
        watching.send("print typed by a watcher\r")
        self.run_cell(first, "print seen by both", 2)
        watching.wait_for("0-1 │ seen by both")
        self.assertNotIn("typed by a watcher", first.screen.text())
        self.assertRegex(self.lockstep("sessions", "list"), r"attached: /dev/pts/\d+, 1 watching")
        third = self.resume("--take-over")
        third.wait_for(prompt(2) + r"\s*\Z")
        self.assertEqual(first.wait_end(), 0)
        self.assertRegex(first.screen.text().replace("\n", ""), rf"/dev/pts/\d+ has taken the session {self.id} over; lockstep --resume")
        self.assertIn("0-1 │ seen by both", third.screen.text())  # the last cell, with what came of it
        watching.send("q")
        self.assertEqual(watching.wait_end(), 0)
        third.send("\x04")
        self.assertEqual(third.wait_end(), 0)

    def test_of_terminals_that_race_one_types(self):
        self.kill(self.start())
        programs = [self.resume() for _ in range(5)]
        attached, refused = [], []
        for program in programs:
            program.wait_for(rf"{prompt(1)}|is attached:")
            (refused if "is attached:" in program.screen.text() else attached).append(program)
        self.assertEqual((len(attached), len(refused)), (1, 4))
        self.assertEqual([each.wait_end() for each in refused], [2] * 4)
        self.run_cell(attached[0], "print mine", 2)

    def test_somebody_else_is_closed_unread(self):
        if os.geteuid() != 0:
            self.skipTest("only root can be somebody else")
        self.start()
        (path,) = glob.glob(f"{self.folder}/lockstep/*.terminal")
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode), 0o700)
        opened = [SCRATCH.name, self.folder, os.path.dirname(path)]
        for folder in opened:  # as if somebody had opened them
            os.chmod(folder, 0o755)
        os.chmod(path, 0o666)
        try:
            child = os.fork()
            if child == 0:
                code = 3
                try:
                    os.setuid(65534)
                    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
                        connection.connect(path)
                        connection.send(b'h{"asks":"type","takes_over":true}')
                        code = 0 if connection.recv(100) == b"" else 1
                except (BrokenPipeError, ConnectionResetError):
                    code = 0
                finally:
                    os._exit(code)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        finally:
            for folder in opened:
                os.chmod(folder, 0o700)
        self.assertRegex(self.lockstep("sessions", "list"), r"attached: /dev/pts/\d+ ")

    def test_connections_that_say_nonsense(self):
        program = self.start()
        (path,) = glob.glob(f"{self.folder}/lockstep/*.terminal")
        for message in (b"k\x04", b"h", b"h[]", b'h{"asks":7}', b'h{"asks":"all"}', b"\xff" * 60000, b"s{}", b"h" + b"[" * 9000):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
                connection.connect(path)
                connection.send(message)
        self.run_cell(program, "print still here", 2)

    def test_a_connection_that_says_nothing_is_closed(self):
        self.start()
        (path,) = glob.glob(f"{self.folder}/lockstep/*.terminal")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(path)
            self.assertEqual(connection.recv(100), b"")

    def test_a_keeper_that_is_stopped(self):
        self.start()
        os.kill(self.keeper, signal.SIGSTOP)
        try:
            self.assertRegex(self.lockstep("sessions", "list"), rf"{self.id} +no answer")
            late = self.resume()
            self.assertEqual(late.wait_end(), 2)
            self.assertIn("the keeper of the session does not answer: has it been stopped?", late.screen.text())
        finally:
            os.kill(self.keeper, signal.SIGCONT)

    def test_sockets_that_were_left_half_made_are_removed(self):
        os.mkdir(f"{self.folder}/lockstep", mode=0o700)
        for name, age_s in (("77-ab", 3600), ("78-cd", 0)):  # the other one may be in the making
            path = f"{self.folder}/lockstep/{name}.terminal-new"
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as left:
                left.bind(path)
            os.utime(path, (time.time() - age_s,) * 2)
        said = self.lockstep("sessions", "clean")
        self.assertIn("removed the socket of 77-ab", said)
        self.assertNotIn("78-cd", said)
        os.unlink(path)

    # ---- The end ------------------------------------------------------------------------------------------------------------

    def test_nobody_comes_back(self):
        first = self.start(option="--detachable=1s")
        self.run_cell(first, "print x", 2)
        self.processes.update(descendants(self.pid))
        self.assertTrue(any("fake" in name or "worker" in name for name in self.processes.values()), self.processes)
        os.kill(first.pid, signal.SIGKILL)
        first.wait_end()
        self.assertEqual(wait_gone(self.processes, LIMIT_S), {})
        self.assertIn("nobody has come back since", self.lockstep("sessions", "show", self.id))
        self.assertEqual(json.loads(self.journal().splitlines()[-1])["event"], "closed")
        late = self.resume()
        self.assertEqual(late.wait_end(), 2)
        self.assertIn(f"the session {self.id} has ended; lockstep sessions show {self.id}", late.screen.text().replace("\n", ""))
        self.assertIn(f"lockstep run --journal {self.id}", late.screen.text().replace("\n", ""))

    def test_exit_codes(self):
        for signal_, code in ((signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGKILL, 128 + signal.SIGKILL)):
            program = self.start()
            self.run_cell(program, "print x", 2)
            self.processes.update(descendants(self.pid))
            os.kill(self.pid, signal_)
            self.assertEqual(program.wait_end(), code)
            self.assertEqual(wait_gone(self.processes, LIMIT_S), {})
        program = self.program("--detachable", "-n", "0")
        self.assertEqual(program.wait_end(), 2)

    def test_sigterm_to_the_keeper_ends_the_session_in_order(self):
        program = self.start()
        self.run_cell(program, "print x", 2)
        os.kill(self.keeper, signal.SIGTERM)
        self.assertEqual(program.wait_end(), 128 + signal.SIGTERM)
        self.assertEqual(json.loads(self.journal().splitlines()[-1])["event"], "closed")

    def test_a_killed_keeper_leaves_no_session(self):
        program = self.start()
        self.run_cell(program, "print x", 2)
        self.processes.update(descendants(self.pid))
        os.kill(self.keeper, signal.SIGKILL)
        self.assertEqual(program.wait_end(), 1)
        self.assertEqual(wait_gone(self.processes, LIMIT_S), {})
        self.assertIn(f"removed the socket of {self.id}", self.lockstep("sessions", "clean"))

    def test_what_can_not_be_resumed(self):
        for words, text in ((("--resume", "77-ab"), "--resume needs a terminal"), (("--detachable",), "--detachable needs a terminal"),
                            (("--detachable=soon",), "'soon' is no time"),
                            (("--detachable=0",), "'0' is no time"), (("--detachable=400d",), "'400d' is no time"),
                            (("--detachable=9999999999999999999h",), "is no time"), (("--detachable=1h1",), "'1h1' is no time"),
                            (("--resume", "last", "--watch", "--take-over"), "--watch"), (("--resume", "last", "--detachable"), "--resume"),
                            (("--resume", ""), "--resume takes the id of a session"),
                            (("--resume", "last", "-n", "4"), "can't be used with --resume"), (("--watch",), "--resume")):
            self.assertIn(text, self.lockstep(*words, code=2))
        program = self.program("--resume", "77-ab")
        self.assertEqual(program.wait_end(), 2)
        self.assertIn("there is no detachable session 77-ab on this machine", program.screen.text())
        other = self.program("-n", "2")
        other.wait_for(prompt(1))
        self.run_cell(other, "print x", 2)
        (session,) = self.sessions()
        self.id = session["id"]
        program = self.resume()
        self.assertEqual(program.wait_end(), 2)
        self.assertIn("was not started with --detachable", program.screen.text().replace("\n", ""))
        other.send("\x04")
        other.wait_end()

    def test_a_path_that_is_too_long_for_a_socket(self):
        long = f"{self.folder}/{'x' * 200}"
        os.makedirs(f"{long}/lockstep", mode=0o700)
        pathlib.Path(f"{long}/lockstep/77-ab.terminal").touch()
        self.environment["XDG_RUNTIME_DIR"] = long
        self.assertRegex(self.lockstep("sessions", "list"), "77-ab +no answer")
        self.lockstep("sessions", "clean")

    def test_what_a_cell_has_shown_is_shown_again(self):
        first = self.start()
        self.run_cell(first, "print one\x0fvalue 42", 2)
        self.run_cell(first, "print two", 3)
        first.send("%output 1\r")
        first.wait_for("^0-1 │ one$", 2)
        first.wait_for("^0-1 = 42$", 2)
        first.send("%output\r")
        first.wait_for("^0-1 │ two$", 2)
        first.send("%output 7\r")
        first.wait_for("✗ there is no cell 7 yet")

    def test_without_a_journal(self):
        first = self.start("--no-journal")
        self.run_cell(first, "print x", 2)
        self.kill(first)
        second = self.resume()
        second.wait_for("^• there is no journal: what has come meanwhile is not shown$")
        second.wait_for(prompt(2) + r"\s*\Z")


if __name__ == "__main__":
    unittest.main()
