// The launcher of a session whose ranks run on the nodes of a Ray cluster: Python, for an interpreter that has ray.
#pragma once

namespace lockstep::shell {

/// Takes the number of ranks (0: one for each GPU, or one on each node, two at least, where none has GPUs), then the
/// command of a relay, whose last word is the path of the ticket. An actor on each node starts the relays of its ranks,
/// with the variables of torchrun. They get the ticket through a pipe: Ray kills actors, which could not remove a file.
/// Ray ends the actors of a program that is gone, and the kernel the relays of an actor that is gone.
inline constexpr const char* kRayLauncher = R"py(
import contextlib, ctypes, os, signal, subprocess, sys, tempfile
try:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError as error:
    sys.exit(f"lockstep: --ray: {sys.executable} has no ray ({error}): activate the environment that has it, or name its "
             "interpreter: --python=PATH")

class Node:
    def run(self, command, ticket, numbers):
        libc = ctypes.CDLL(None)
        end_with_actor = lambda: libc.prctl(1, signal.SIGKILL)
        with tempfile.TemporaryFile() as errors:
            relays = [subprocess.Popen([*command, "-"], env={**os.environ, **each}, stdin=subprocess.PIPE, stderr=errors,
                                       preexec_fn=end_with_actor) for each in numbers]
            for each in relays:
                with contextlib.suppress(BrokenPipeError), each.stdin:  # it has ended, and says why
                    each.stdin.write(ticket)
            running, code = list(relays), 0
            while running and code == 0:  # one that fails ends the others, which would wait for it
                os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
                code = max((each.poll() or 0 for each in running), key=abs)
                running = [each for each in running if each.returncode is None]
            for each in running:
                each.kill()
            errors.seek(0)
            return code, errors.read().decode(errors="replace")

def spread(nodes, wanted):
    gpus = [int(node["Resources"].get("GPU", 0)) for node in nodes]
    if not wanted and any(gpus):
        return gpus
    wanted = wanted or max(2, len(nodes))
    return [wanted // len(nodes) + (number < wanted % len(nodes)) for number in range(len(nodes))]

try:
    ray.init(address="auto", logging_level="ERROR", log_to_driver=False)
except ConnectionError as error:
    sys.exit(f"lockstep: --ray: no cluster of Ray is reached from here: {error}")
here = ray.get_runtime_context().get_node_id()
nodes = sorted((node for node in ray.nodes() if node["Alive"]),
               key=lambda node: (node["NodeID"] != here, node["NodeManagerAddress"]))
counts = spread(nodes, int(sys.argv[1]))
with open(sys.argv[-1], "rb") as file:
    ticket = file.read()
ends, first = [], 0
for node, count in zip(nodes, counts):
    if count == 0:
        continue
    numbers = [{"RANK": str(first + local), "WORLD_SIZE": str(sum(counts)), "LOCAL_RANK": str(local),
                "LOCAL_WORLD_SIZE": str(count)} for local in range(count)]
    has_gpus = node["Resources"].get("GPU", 0) > 0
    actor = ray.remote(num_cpus=0, num_gpus=min(count, int(node["Resources"].get("GPU", 0))) if has_gpus else 0,
                       scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False))(Node).remote()
    ends.append((actor, actor.run.remote(sys.argv[2:-1], ticket, numbers)))
    first += count
try:
    code, said = max(ray.get([end for _, end in ends]), key=lambda end: abs(end[0]))
    sys.stderr.write(said if code else "")
    sys.exit(code)
except ray.exceptions.RayError as error:
    sys.exit(f"lockstep: --ray: {error}")
)py";

}  // namespace lockstep::shell
