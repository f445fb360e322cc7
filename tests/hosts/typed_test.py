"""Sessions over two hosts at which somebody types: questions and Ctrl-C while a cell runs, links that are slow or out."""

import subprocess
import sys
import time

import hosts as module
from session_support import LOCKSTEP, OnHosts

CUTS = 5
CUT_S = 0.3  # for which a cable is out: TCP has to send again
ON_BOTH = ("--hosts", "node1,node2")
OBJECT = 2_000_000  # bytes of an object; LinkStream and RelayOutbox have 1 MB on its way
SLOW = OBJECT // 8  # bytes a second

# Marks each run in a file of the rank, waits for a file, and meets the others. The host's own clock is not in it.
COUNTS = """#include <fcntl.h>
#include <unistd.h>
void runs(int cell) {{
  std::string folder = "{folder}", name = folder + "/ran-" + std::to_string(rank);
  int file = ::open(name.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  std::string line = std::to_string(cell) + "\\n";
  (void)!::write(file, line.data(), line.size());
  ::close(file);
  std::cout << "runs " << cell << std::endl;
  while (::access((folder + "/go-" + std::to_string(cell)).c_str(), F_OK)) ::usleep(1000);
  auto sum = torch::ones({{1}}) * rank;
  dist::all_reduce(sum);
  std::cout << "sum " << cell << " " << sum.item<int>() << std::endl;
}}"""


class Typed(OnHosts):
    def test_questions_and_an_interrupt(self):
        cells = {(): ("int kept = rank + 7;",
                      'if (rank != 3) dist::barrier(); else { std::cout << "spins" << std::endl; for (;;) {} }'),
                 (f"--python={sys.executable}",): (
                     "kept = rank + 7", "if rank != 3: dist.barrier()\nelse:\n    print('spins', flush=True)\n    while True: pass\n\n")}
        for options, (keeps, waits) in cells.items():
            with self.subTest(options=options):
                session = self.terminal("-n", "4", *ON_BOTH, *options)
                session.type(keeps)
                session.type(waits)
                session.wait_for_text("3   │ spins\n")
                for question in ("%stack", "%hang", "%dist_status"):
                    session.type(question)
                for answer in ("\nrank 3\n", "\nno hang is proven\n", "\n3     running  "):
                    session.wait_for_text(answer)
                session.send("\x03")
                said = session.settle()
                session.type("kept")
                said += session.settle()
                self.assertRegex(said, r"\nranks 0-2\n(  Python\n)?(    .*\n)*    .*barrier")
                self.assertRegex(said, r"\nrank 3\n(  Python\n)?(    .*\n)*    .*cell 2(, line|>, line|:)")
                self.assertRegex(said, r"\nranks? .*: waits? .* s in barrier #1 \(cell 2, line 1\) for rank 3\n")
                self.assertRegex(said, r"\nrank 3: computes .*at cell 2, line \d\nno hang is proven\n")
                self.assertRegex(said, r"\n0     waiting  \d+ +node1 .*\n1 .*\n2     waiting  \d+ +node2 .*\n3     running  \d+ +node2 ")
                self.assertIn("variables are kept\n", said)
                self.assertIn("\n0   = 7\n1   = 8\n2   = 9\n3   = 10\n", said)
                self.end(session)
        self.assert_nothing_is_left()

    def end(self, session):
        session.send("\x04")
        self.assertEqual(session.wait_end(), 0)

    def sent(self):
        return [self.hosts.hub.sent_to(host) for host in self.hosts]

    def sent_by(self, session, cell):
        """How many bytes it costs to each host."""
        before = self.sent()
        session.type(cell)
        said = session.settle()
        return [now - then for then, now in zip(before, self.sent())], said

    def test_an_object_goes_to_a_host_once(self):
        for options, cell in (((), "char big[{}] = {{1}};"), ((f"--python={sys.executable}",), "%%cpp\nchar big[{}] = {{1}};\n\n")):
            with self.subTest(options=options):
                session = self.terminal("-n", "8", *ON_BOTH, *options)
                session.type(cell.format(1))  # headers of C++ cells go before
                session.settle()
                for bytes in self.sent_by(session, cell.format(OBJECT))[0]:
                    self.assertGreater(bytes, OBJECT)
                    self.assertLess(bytes, 1.5 * OBJECT, "four ranks are on each host")
                self.end(session)

    def test_an_interrupt_while_objects_are_on_their_way(self):
        """It comes before the object has, and what follows comes after it."""
        session = self.terminal("-n", "4", *ON_BOTH)
        session.type("int kept = rank + 7;")
        session.settle()
        for host in self.hosts:
            host.slow_down(SLOW)
            self.addCleanup(host.slow_down, 0)
        before = self.sent()
        session.type(f'char big[{4 * OBJECT}] = {{1}}; kept = 0; std::cout << "it ran" << std::endl;')
        while any(now - then < OBJECT / 2 for then, now in zip(before, self.sent())):
            session.pump(0.01)
        session.send("\x03")
        session.wait_for_text("interrupted; nothing of the cell has run\n")
        session.type("kept")
        said = session.settle()
        self.assertIn("\n0   = 7\n1   = 8\n2   = 9\n3   = 10\n", said)
        self.assertNotIn("\n0-3 │ it ran", said)
        self.end(session)

    def test_a_cell_runs_once_over_a_link_that_is_cut(self):
        """Cables that are out while objects go, while the cell runs and while its end is told; connections that end."""
        if not self.hosts.hub.can_end_connections():
            self.skipTest("this kernel lets nobody end connections (CONFIG_INET_DIAG_DESTROY)")
        folder, ticket = self.hosts.folder / "runs", self.hosts.folder / "ticket"
        folder.mkdir()
        session = self.terminal("-n", "4", "--ticket", ticket)
        session.type(COUNTS.format(folder=folder))
        session.wait_for_text("relay --ticket")
        relays = [self.relay(rank, ticket) for rank in range(4)]
        session.settle()
        node1, node2 = self.hosts
        for cell in range(CUTS):
            self.cut(node2)
            session.type(f"runs({cell});")
            time.sleep(CUT_S)
            node2.restore()
            session.wait_for_text(f"0-3 │ runs {cell}\n")
            for host in self.hosts:
                self.assertIn(self.hosts.hub.address, host.end_connections(self.hosts.hub.address))
            self.cut(node1)
            (folder / f"go-{cell}").touch()
            time.sleep(CUT_S)
            node1.restore()
            session.wait_for_text(f"0-3 │ sum {cell} 6\n")
        session.settle()
        self.end(session)
        for rank in range(4):
            self.assertEqual((folder / f"ran-{rank}").read_text(), "".join(f"{cell}\n" for cell in range(CUTS)))
        for each in relays:
            self.assertEqual((each.communicate()[0], each.returncode), ("", 0))
        self.assert_nothing_is_left()

    def cut(self, host):
        host.cut()
        self.addCleanup(host.restore)

    def relay(self, rank, ticket):
        numbers = {"RANK": rank, "WORLD_SIZE": 4, "LOCAL_RANK": rank % 2, "LOCAL_WORLD_SIZE": 2}
        return self.hosts[f"node{1 + rank // 2}"].start(
            LOCKSTEP, "relay", "--ticket", ticket, env={name: str(value) for name, value in numbers.items()},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


if __name__ == "__main__":
    module.main()
