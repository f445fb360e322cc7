"""What users of a kernel rely on, with real ranks: python3 kernel_test.py LOCKSTEP"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

from kernel_support import LIMIT_S, Kernel, install, kill, lines_by_rank, results_of, spec, text_of, use_own_folders
from processes import descendants, start_time, wait_gone
from waiting import wait_until

use_own_folders()
LOCKSTEP = sys.argv.pop(1)
install(LOCKSTEP, "-n", "2")

import jupyter_client.session  # noqa: E402

LOOP = 'std::cout << "begun" << std::endl; for (;;) {}'


def has_text(text):
    """What a cell shows has it; its code, which comes first, may have it as well."""
    return lambda message: (message["msg_type"] != "execute_input" and
                            text in json.dumps(message["content"], ensure_ascii=False))


def session_folders(pid):
    """Of the sessions of a process."""
    folder = os.path.join(os.environ["XDG_RUNTIME_DIR"], "lockstep")
    return [name for name in os.listdir(folder) if name.startswith(f"{pid}-")]


class OnOneKernel(unittest.TestCase):
    """Cells of one kernel, which stays the same from test to test."""

    @classmethod
    def setUpClass(cls):
        cls.kernel = Kernel()

    @classmethod
    def tearDownClass(cls):
        cls.kernel.close()

    def ok(self, code, **options):
        reply, published = self.kernel.run(code, **options)
        self.assertEqual(reply["status"], "ok", reply)
        return published

    def fails(self, code, **options):
        reply, published = self.kernel.run(code, **options)
        self.assertEqual(reply["status"], "error", published)
        return reply, published

    # ---- Values, output, errors ------------------------------------------------------------------------------------

    def test_state_stays_and_a_name_can_be_defined_again(self):
        self.ok("int again = 1;")
        self.ok("struct Again { double x = 2.5; } again;")
        self.assertEqual(results_of(self.ok("again.x")), ["2.5"])

    def test_output_is_shown_behind_its_ranks(self):
        published = self.ok('std::cout << "same\\n" << "rank " << rank << "\\n"; std::cerr << "aside\\n";')
        self.assertEqual(lines_by_rank(text_of(published)), {0: ["same", "rank 0"], 1: ["same", "rank 1"]})
        self.assertEqual(lines_by_rank(text_of(published, "stderr")), {0: ["aside"], 1: ["aside"]})

    def test_values_that_differ_are_one_result(self):
        published = self.ok("%%rank 1\nrank * 10")
        self.assertEqual(results_of(published), ["1   = 10"])
        data = self.ok("rank")[0]["content"]["data"]
        self.assertEqual([v["data"] for v in data["application/vnd.lockstep.value+json"]["values"]], [0, 1])

    def test_output_comes_while_the_cell_runs(self):
        request = self.kernel.client.execute(LOOP)
        self.kernel.wait_for(request, has_text("begun"))  # else this waits for ever
        self.assertEqual(self.kernel.interrupt()["status"], "ok")
        self.assertEqual(self.kernel.finish(request)[0]["ename"], "interrupted")

    def test_an_unfinished_line_is_shown_in_place(self):
        bar = '''for (int i = 0; i <= 4; ++i) {
          std::cout << '\\r' << i * 25 << '%' << std::flush;
          dist::barrier();
          std::this_thread::sleep_for(std::chrono::milliseconds(120));
        }
        std::cout << "\\ndone\\n";'''
        published = self.ok(bar)
        shown = [m for m in published if m["msg_type"] == "display_data"]
        updates = [m for m in published if m["msg_type"] == "update_display_data"]
        self.assertGreaterEqual(len(shown), 1, published)
        self.assertGreaterEqual(len(updates), 1, published)
        ids = {m["content"]["transient"]["display_id"] for m in shown}
        self.assertTrue({m["content"]["transient"]["display_id"] for m in updates} <= ids)
        seen = json.dumps([m["content"] for m in published], ensure_ascii=False)
        self.assertIn("100%", seen)
        self.assertIn("done", seen)
        self.assertNotIn("\\r", seen)

    def test_a_flood_is_cut_and_kept(self):
        published = self.ok('for (int i = 0; i < 20000; ++i) std::cout << "line " << i << "\\n";')
        text = text_of(published)
        self.assertLess(len(text), 600_000)
        self.assertIn("line 19999", text)
        command = re.search(r"!cp (\S+) output.txt keeps all of them", text)
        with open(command.group(1)) as file:  # of this user's own process
            kept = file.read()
        self.assertEqual(len(set(re.findall(r"line \d+$", kept, re.MULTILINE))), 20000)

    def test_findings_are_tables(self):
        published = self.ok("auto drifted = torch::ones(3) * rank;\n%verify drifted")
        data = next(m["content"]["data"] for m in published if m["msg_type"] == "display_data")
        self.assertIn("✗ drifted", data["text/plain"])
        self.assertRegex(data["text/html"], r"<table>.*<td[^>]*>float32</td>")
        finding = data["application/vnd.lockstep.finding+json"]
        self.assertEqual((finding["verdict"], finding["ranks"]), ("mismatch", [0, 1]))

    def test_reports_are_data_and_charts(self):
        self.ok("auto charted = ddp::DistributedDataParallel(torch::nn::Linear(8, 8));\n"
                "torch::optim::SGD sgd(charted->parameters(), 0.01);\n"
                "auto step = [&] { sgd.zero_grad(); charted(torch::randn({4, 8})).sum().backward(); sgd.step(); };\n"
                "for (int i = 0; i < 3; ++i) step();")
        for magic, mark in (("%buckets charted", "span"), ("%time_sync step charted sgd --steps 2", "bar"),
                            ("%memory charted", "stack")):
            datas = [m["content"]["data"] for m in self.ok(magic) if "data" in m["content"]]
            (report,) = [data for data in datas if "application/vnd.lockstep.value+json" in data]
            (value,) = report["application/vnd.lockstep.value+json"]["values"]
            self.assertEqual((value["ranks"], value["data"]["report"]), ([0, 1], magic.split()[0][1:]))
            (chart,) = [data for data in datas if "application/vnd.vegalite.v5+json" in data]
            self.assertEqual(chart["application/vnd.lockstep.chart+json"]["kind"], mark)
            self.assertTrue(chart["application/vnd.vegalite.v5+json"]["data"]["values"], magic)
            self.assertTrue(chart["image/svg+xml"].startswith("<svg"), magic)

    def test_an_error_has_a_traceback_and_is_one_message(self):
        reply, published = self.fails('void deep() { throw std::out_of_range("here"); }\ndeep();')
        self.assertEqual([m["msg_type"] for m in published], ["error"])
        self.assertEqual(reply["ename"], "std::out_of_range")
        self.assertEqual(reply["evalue"], "ranks 0-1: here")
        self.assertIn("deep()", "\n".join(reply["traceback"]))

    def test_a_compile_error_shows_the_users_lines(self):
        reply, _ = self.fails("int fine = 1;\nint x = missing;")
        self.assertEqual(reply["ename"], "compile_error")
        plain = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(reply["traceback"]))
        self.assertIn("2 | int x = missing;", plain)

    def test_numbers_of_cells_are_those_of_the_notebook(self):
        self.ok("%who")
        reply, _ = self.fails('throw 7;')
        self.assertIn(f"in cell {reply['execution_count']}, line 1", "\n".join(reply["traceback"]))

    # ---- Requests --------------------------------------------------------------------------------------------------

    def test_silent_and_store_history(self):
        first = self.kernel.run("int counted = 1;")[0]["execution_count"]
        reply, published = self.kernel.run('std::cout << "unseen\\n"; counted', silent=True)
        self.assertEqual((reply["status"], published), ("ok", []))
        reply, published = self.kernel.run("counted + 1", store_history=False)
        self.assertEqual(results_of(published), ["2"])
        self.assertEqual(self.kernel.run("counted")[0]["execution_count"], first + 1)
        history = self.kernel.ask(self.kernel.client.history(hist_access_type="tail", n=2, raw=True, output=False))
        self.assertEqual([code for _, _, code in history["history"]], ["int counted = 1;", "counted"])

    def test_user_expressions(self):
        self.ok("int of_user = 20;")
        reply, published = self.kernel.run("of_user += 1;", user_expressions={"a": "of_user * 2", "b": "no_such"})
        self.assertEqual(published, [])
        self.assertEqual(reply["user_expressions"]["a"]["data"]["text/plain"], "42")
        self.assertEqual(reply["user_expressions"]["b"]["status"], "error")

    def test_cells_after_one_that_fails_do_not_run(self):
        requests = [self.kernel.client.execute(LOOP)]
        self.kernel.wait_for(requests[0], has_text("begun"))
        requests += [self.kernel.client.execute(code) for code in ("int never_run = 1;", "never_run")]
        # One thread carries all channels on each side: when it has carried an answer, the cells have come before.
        self.kernel.control("kernel_info_request")
        self.kernel.interrupt()
        replies = [self.kernel.finish(request)[0] for request in requests]
        self.assertEqual([reply["status"] for reply in replies], ["error", "aborted", "aborted"])
        self.fails("never_run")

    def test_cells_go_on_after_one_that_is_expected_to_fail(self):
        requests = [self.kernel.client.execute("throw 1;", stop_on_error=False),
                    self.kernel.client.execute("int gone_on = 1;")]
        replies = [self.kernel.finish(request)[0] for request in requests]
        self.assertEqual([reply["status"] for reply in replies], ["error", "ok"])

    def test_input_fails_clearly(self):
        reply, _ = self.fails("std::string name; std::cin >> name;", allow_stdin=True)
        self.assertIn("the standard input of ranks is empty", reply["evalue"])

    def test_comms(self):
        session, client = self.kernel.client.session, self.kernel.client
        message = session.msg("comm_open", {"comm_id": "c1", "target_name": "widgets", "data": {}})
        client.shell_channel.send(message)
        closed = self.kernel.wait_for(message["header"]["msg_id"], lambda m: m["msg_type"] == "comm_close")
        self.assertEqual(closed["content"]["comm_id"], "c1")
        self.assertEqual(self.kernel.ask(client.comm_info())["comms"], {})

    def test_completion_in_odd_places_is_harmless(self):
        self.ok("struct Odd { int field_of_odd = 1; } odd_name;")
        client = self.kernel.client

        def matches(code, position=None):
            reply = self.kernel.ask(client.complete(code, position))
            self.assertEqual(reply["status"], "ok")
            return reply["matches"]

        self.assertIn("odd_name", matches("odd_na"))
        self.assertIn("field_of_odd", matches("odd_name."))
        self.assertIn("%verify", matches("%ver"))
        for code in ("", "\t\n", "))", '"text', "/*", "#inc", "%%rank [", "?", "odd_name.nothing.", "🙂é.", "R\"(", "\\"):
            matches(code)
            matches(code, len(code) // 2)
        reply = self.kernel.ask(client.complete("/* 🙂é */ odd_na"))
        self.assertEqual((reply["cursor_start"], reply["cursor_end"]), (9, 15))  # characters, not bytes
        self.assertEqual(self.ok("odd_name.field_of_odd")[0]["content"]["data"]["text/plain"], "1")

    def test_inspection(self):
        client = self.kernel.client
        reply = self.kernel.ask(client.inspect("torch::zeros({2, 3}"))
        self.assertTrue(reply["found"])
        self.assertIn("zeros", reply["data"]["text/plain"])
        self.assertIn("%rank", self.kernel.ask(client.inspect("%rank"))["data"]["text/plain"])
        for code in ("", "no_such_name", "((", "é"):
            self.assertFalse(self.kernel.ask(client.inspect(code))["found"], code)

    def test_a_library_that_cannot_be_loaded_says_so(self):
        reply, _ = self.fails("%lib /no/such/library.so")
        self.assertIn("/no/such/library.so", "\n".join(reply["traceback"]))

    # ---- While a cell runs -----------------------------------------------------------------------------------------

    def test_control_is_answered_while_a_cell_runs(self):
        request = self.kernel.client.execute(LOOP)
        self.kernel.wait_for(request, has_text("begun"))
        self.assertEqual(self.kernel.control("kernel_info_request")["implementation"], "lockstep")
        debug = self.kernel.control("debug_request", {"type": "request", "seq": 3, "command": "initialize"})
        self.assertEqual((debug["success"], debug["request_seq"]), (False, 3))
        self.assertTrue(self.kernel.client.hb_channel.is_beating())
        self.assertEqual(self.kernel.interrupt()["status"], "ok")
        self.assertEqual(self.kernel.finish(request)[0]["status"], "error")

    def test_an_interrupt_keeps_state(self):
        self.ok("int kept = 7;")
        for _ in range(2):
            request = self.kernel.client.execute(LOOP)
            self.kernel.wait_for(request, has_text("begun"))
            self.kernel.interrupt()
            self.assertEqual(self.kernel.finish(request)[0]["ename"], "interrupted")
        self.kernel.interrupt()  # nothing runs
        self.assertEqual(results_of(self.ok("kept")), ["7"])

    def test_a_proven_hang_gives_the_prompt_back(self):
        reply, published = self.fails("if (rank == 0) dist::barrier();")
        self.assertEqual(reply["ename"], "hang")
        finding = next(m for m in published if m["msg_type"] == "display_data")
        text = " ".join(finding["content"]["data"]["text/plain"].split())  # without the places where it is wrapped
        self.assertIn("rank 1 has finished without entering it", text)
        self.assertIn("barrier", text_of(self.ok("%hang")))
        self.ok("%abort")
        self.assertEqual(results_of(self.ok("1 + 1")), ["2"])

    def test_an_interrupt_frees_ranks_that_hang(self):
        self.fails("if (rank == 0) dist::barrier();")
        self.kernel.interrupt()
        self.assertEqual(results_of(self.ok("2 + 2")), ["4"])


class Kernels(unittest.TestCase):
    def start(self, name="lockstep", **environment):
        kernel = Kernel(name, **environment)
        self.addCleanup(kernel.close)
        return kernel

    def test_a_crash_does_not_end_the_kernel(self):
        kernel = self.start()
        self.assertEqual(kernel.run("int kept = 5;")[0]["status"], "ok")
        reply, published = kernel.run("if (rank == 1) *(volatile int*)nullptr = 1;")
        self.assertEqual((reply["status"], reply["ename"]), ("error", "SIGSEGV"))
        self.assertEqual(results_of(kernel.run("kept")[1]), ["0   = 5"])
        kernel.run("%dist_reset")
        self.assertEqual(results_of(kernel.run("world_size")[1]), ["2"])

    def test_restart_starts_fresh_workers(self):
        kernel = self.start()
        kernel.run("int gone = 1;")
        before = descendants(kernel.pid)
        self.assertGreaterEqual(len(before), 4)  # compiler, store, two ranks
        kernel.manager.restart_kernel()
        kernel.client.wait_for_ready(timeout=LIMIT_S)
        reply, _ = kernel.run("gone")
        self.assertEqual((reply["ename"], reply["execution_count"]), ("compile_error", 1))
        self.assertEqual(wait_gone(before, 0), {})

    def test_two_kernels_at_once(self):
        first, second = self.start(), self.start()
        requests = [kernel.client.execute(f"int own = {number}; dist::barrier(); own")
                    for number, kernel in enumerate((first, second))]
        results = [results_of(kernel.finish(request)[1]) for kernel, request in zip((first, second), requests)]
        self.assertEqual(results, [["0"], ["1"]])

    def test_a_killed_kernel_leaves_nothing(self):
        kernel = self.start()
        request = kernel.client.execute('for (int i = 0; i < 5000; ++i) std::cout << i << "\\n";\n' + LOOP)
        kernel.wait_for(request, lambda message: message["msg_type"] == "stream")
        processes = descendants(kernel.pid)
        self.assertGreaterEqual(len(processes), 4)
        pid = kernel.pid
        kill(pid)
        self.assertEqual(wait_gone(processes), {})
        self.start()  # removes the folder
        self.assertEqual(session_folders(pid), [])

    def test_the_journal_of_a_killed_kernel(self):
        kernel = self.start()
        self.assertEqual(results_of(kernel.run("int seven = 7; seven")[1]), ["7"])
        kernel.run('std::cout << "rank " << rank << std::endl;')
        request = kernel.client.execute(LOOP)
        kernel.wait_for(request, has_text("begun"))
        pid = kernel.pid
        kill(pid)

        def shown():  # its last thread lets go of the journal after the process counts as ended
            text = subprocess.run([LOCKSTEP, "sessions", "show", f"{pid}-"], capture_output=True, text=True).stdout
            return text if "the session was killed here, or its end could not be written\n" in text else ""
        text = wait_until(shown)
        for line in ("0-1 = 7\n", "0   │ rank 0\n", "1   │ rank 1\n", f"▸ {LOOP}\n"):
            self.assertIn(line, text)

    def test_a_frontend_that_comes_back_finds_names_and_output(self):
        kernel = self.start()
        go = os.path.join(tempfile.mkdtemp(dir=os.environ["XDG_RUNTIME_DIR"]), "go")
        request = kernel.client.execute(f'while (::access("{go}", F_OK) != 0) ::sched_yield(); int left = 7; '
                                        'std::cout << "meanwhile\\n"; left')
        kernel.wait_for(request, lambda message: message["msg_type"] == "execute_input")
        kernel.client.stop_channels()
        with open(go, "w"):
            pass
        kernel.client = kernel.manager.client()
        kernel.client.start_channels()
        kernel.client.wait_for_ready(timeout=LIMIT_S)
        reply, published = kernel.run("left + 1")
        self.assertEqual(reply["status"], "ok", reply)
        self.assertEqual(results_of(published), ["8"])
        self.assertEqual(lines_by_rank(text_of(published)), {0: [], 1: []})
        reply, published = kernel.run("%output 1")
        self.assertEqual(reply["status"], "ok", reply)
        self.assertEqual(lines_by_rank(text_of(published)), {0: ["meanwhile"], 1: ["meanwhile"]})
        self.assertEqual(results_of(published), ["7"])

    def test_shutdown_ends_a_running_cell(self):
        kernel = self.start()
        request = kernel.client.execute(LOOP)
        kernel.wait_for(request, has_text("begun"))
        pid, processes = kernel.pid, descendants(kernel.pid)
        self.assertEqual(len(session_folders(pid)), 1)
        reply = kernel.control("shutdown_request", {"restart": False})
        self.assertEqual((reply["status"], reply["restart"]), ("ok", False))
        wait_until(lambda: not kernel.manager.is_alive())
        self.assertEqual(wait_gone(processes), {})
        self.assertEqual(session_folders(pid), [])

    def test_exit_in_a_cell_ends_the_kernel(self):
        kernel = self.start()
        reply, _ = kernel.run("quit")
        self.assertEqual([part["source"] for part in reply["payload"]], ["ask_exit"])
        wait_until(lambda: not kernel.manager.is_alive())

    def test_the_kernel_ends_with_its_frontend(self):
        program = ("import sys, time\nfrom jupyter_client.manager import KernelManager\n"
                   "manager = KernelManager(kernel_name='lockstep')\nmanager.start_kernel()\n"
                   "print(manager.provisioner.pid, flush=True)\ntime.sleep(600)\n")
        frontend = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        self.addCleanup(frontend.stdout.close)
        self.addCleanup(frontend.wait)
        self.addCleanup(frontend.kill)
        pid = int(frontend.stdout.readline())
        frontend.kill()
        wait_until(lambda: start_time(pid) is None)
        # One that comes up later finds no frontend.
        frontend.wait()
        late = subprocess.run([LOCKSTEP, "kernel", "run"], stderr=subprocess.DEVNULL, timeout=LIMIT_S,
                              env=os.environ | {"JPY_PARENT_PID": str(frontend.pid)})
        self.assertEqual(late.returncode, 0)

    def test_messages_that_are_not_signed_are_refused(self):
        kernel = self.start()
        session = jupyter_client.session.Session(key=b"another", signature_scheme="hmac-sha256")
        session.send(kernel.client.shell_channel.socket, session.msg("execute_request", {"code": "int forged = 1;"}))
        reply, _ = kernel.run("forged")
        self.assertEqual(reply["ename"], "compile_error")

    def test_ranks_that_cannot_start_are_reported_by_the_cell(self):
        kernel = self.start(LOCKSTEP_LIBTORCH="/no/such/folder")
        reply, _ = kernel.run("1 + 1")
        self.assertEqual((reply["status"], reply["ename"]), ("error", "session_error"))
        self.assertIn("/no/such/folder", "\n".join(reply["traceback"]))
        self.assertEqual(kernel.run("%help")[0]["status"], "ok")

    def test_a_kernel_starts_its_ranks_with_dist_init(self):
        install(LOCKSTEP, "--name", "lazy")
        kernel = self.start("lazy")
        self.assertEqual(kernel.run("%dist_init -n 3")[0]["status"], "ok")
        self.assertEqual(results_of(kernel.run("world_size")[1]), ["3"])
        self.assertEqual(kernel.run("%dist_init -n 4")[0]["status"], "ok")
        self.assertEqual(results_of(kernel.run("world_size")[1]), ["4"])


class Installation(unittest.TestCase):
    def command(self, *arguments, **environment):
        return subprocess.run([LOCKSTEP, "kernel", *arguments], capture_output=True, text=True,
                              env=dict(os.environ, **environment))

    def test_what_is_installed(self):
        kernel = spec()
        self.assertEqual(kernel["display_name"], "Lockstep (C++20, 2 ranks)")
        self.assertEqual(kernel["language"], "c++20")
        self.assertEqual(kernel["interrupt_mode"], "message")
        self.assertTrue(os.path.isabs(kernel["argv"][0]))
        self.assertEqual(kernel["argv"][-1], "--num-processes=2")
        folder = os.path.join(os.environ["JUPYTER_DATA_DIR"], "kernels", "lockstep")
        self.assertEqual(sorted(os.listdir(folder)),
                         ["kernel.json", "logo-32x32.png", "logo-64x64.png", "logo-svg.svg"])
        with open(os.path.join(folder, "logo-64x64.png"), "rb") as file:
            self.assertEqual(file.read(8), b"\x89PNG\r\n\x1a\n")

    def test_a_prefix_and_a_name(self):
        with tempfile.TemporaryDirectory() as prefix:
            done = self.command("install", "--prefix", prefix, "--name", "four", "-n", "4", "-I", ".",
                                LOCKSTEP_HOME="/shared/home")
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(os.path.join(prefix, "share/jupyter/kernels/four/kernel.json")) as file:
                kernel = json.load(file)
            arguments = kernel["argv"]
            self.assertEqual(kernel["env"]["LOCKSTEP_HOME"], "/shared/home")
            self.assertIn("--num-processes=4", arguments)
            self.assertIn("--include-dir=" + os.path.join(os.getcwd(), "."), arguments)

    def test_options_of_other_machines(self):
        with tempfile.TemporaryDirectory() as prefix:
            def installed(*options):
                done = self.command("install", "--prefix", prefix, "-n", "2", *options)
                self.assertEqual(done.returncode, 0, done.stderr)
                with open(os.path.join(prefix, "share/jupyter/kernels/lockstep/kernel.json")) as file:
                    arguments = json.load(file)["argv"]
                # It starts anywhere, and takes them.
                command = [each.replace("{connection_file}", "/no/such/file") for each in arguments]
                started = subprocess.run(command, capture_output=True, text=True, cwd=prefix)
                self.assertIn("cannot read the connection file", started.stderr)
                return arguments[-len(options):]

            hosts = ["--hosts=node1,user@node2", "--remote-program=/opt/lockstep", "--start-timeout=90"]
            self.assertEqual(installed(*hosts), hosts)
            self.assertEqual(installed("--ticket=here/ticket"), [f"--ticket={os.path.join(os.getcwd(), 'here/ticket')}"])
            launch = ["--launch=mpirun -H node1:1,node2:1"]
            self.assertEqual(installed(*launch), launch)
            for options, words in ((["--hosts", "node1", "--ticket", "t"], "give one of them"),
                                   (["--start-timeout", "9"], "for ranks on other machines"),
                                   (["--hosts", "node1", "--start-timeout", "1e10"], "at most 31536000, a year")):
                done = self.command("install", "--prefix", prefix, *options)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(words, done.stderr)

    def test_mistakes(self):
        for arguments, words in ((["install", "--name", "a b"], "letters, digits"),
                                 (["install", "--user", "--prefix", "/x"], "give one of them"),
                                 (["install", "--prefix", "/proc/no"], "--prefix DIR installs elsewhere"),
                                 (["run", "-f", "/no/such/file"], "cannot read the connection file"),
                                 (["unknown"], "unknown command")):
            done = self.command(*arguments)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(words, done.stderr)

    def test_connection_files_that_are_refused(self):
        good = {"shell_port": 0, "iopub_port": 0, "stdin_port": 0, "control_port": 0, "hb_port": 0, "key": "k"}
        for change, words in (({"key": ""}, "has no key"), ({"shell_port": 70000}, "is no port"),
                              ({"signature_scheme": "none"}, "hmac-sha256 only"), ({"transport": "udp"}, "tcp nor ipc"),
                              ({"ip": 7}, "is no text")):
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                json.dump(dict(good, **change), file)
                file.flush()
                done = self.command("run", "-f", file.name)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(words, done.stderr)

    def test_a_kernel_without_a_connection_file(self):
        from jupyter_client import BlockingKernelClient
        program = subprocess.Popen([LOCKSTEP, "kernel", "run"], stderr=subprocess.PIPE, text=True)
        self.addCleanup(program.stderr.close)
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        name = re.search(r"--existing (\S+)", program.stderr.readline()).group(1)
        path = os.path.join(os.environ["JUPYTER_RUNTIME_DIR"], name)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        client = BlockingKernelClient(connection_file=path)
        client.load_connection_file()
        client.start_channels()
        self.addCleanup(client.stop_channels)
        client.wait_for_ready(timeout=LIMIT_S)
        program.send_signal(signal.SIGTERM)
        self.assertEqual(program.wait(), 128 + signal.SIGTERM)
        self.assertFalse(os.path.exists(path))


if __name__ == "__main__":
    unittest.main(verbosity=2)
